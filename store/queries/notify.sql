-- name: InsertRule :one
INSERT INTO notification_rules (organization, id, name, pipeline, resource, events, stale_seconds, no_progress_seconds,
    channel, url, url_secret, recipients, paused, secret, secret_prefix, watch_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
RETURNING *;

-- name: GetRule :one
SELECT * FROM notification_rules WHERE organization = $1 AND id = $2 AND deleted_at IS NULL;

-- name: LockRule :one
SELECT * FROM notification_rules WHERE organization = $1 AND id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE;

-- name: UpdateRule :one
UPDATE notification_rules SET name = $3, pipeline = $4, resource = $5, events = $6, stale_seconds = $7, no_progress_seconds = $8,
    channel = $9, url = $10, url_secret = $11, recipients = $12, paused = $13, secret = $14, secret_prefix = $15, watch_at = $16,
    old_secret = $17, old_until = $18, version = version + 1, updated_at = now()
WHERE organization = $1 AND id = $2
RETURNING *;

-- name: DeleteRule :exec
UPDATE notification_rules SET deleted_at = now(), watch_at = NULL, version = version + 1, updated_at = now()
WHERE organization = $1 AND id = $2;

-- name: CancelDeliveries :exec
UPDATE notification_deliveries SET state = 'canceled', next_at = NULL
WHERE organization = $1 AND rule = $2 AND state IN ('pending', 'sending');

-- name: ListRules :many
SELECT * FROM notification_rules
WHERE organization = $1 AND deleted_at IS NULL AND id > @after
  AND (sqlc.narg(pipeline)::uuid IS NULL OR pipeline = sqlc.narg(pipeline))
ORDER BY id LIMIT @count;

-- name: LiveRules :many
SELECT * FROM notification_rules WHERE organization = $1 AND deleted_at IS NULL AND NOT paused;

-- name: InsertDelivery :execrows
INSERT INTO notification_deliveries (organization, id, rule, event, event_key, pipeline, run, channel, state, payload, next_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'pending', $9, $10)
ON CONFLICT DO NOTHING;

-- name: GetDelivery :one
SELECT * FROM notification_deliveries WHERE organization = $1 AND id = $2;

-- name: LockDelivery :one
SELECT * FROM notification_deliveries WHERE organization = $1 AND id = $2 FOR UPDATE;

-- name: ListDeliveryAttempts :many
SELECT * FROM notification_attempts WHERE organization = $1 AND delivery = $2 ORDER BY claim LIMIT 200;

-- name: ListDeliveries :many
SELECT * FROM notification_deliveries
WHERE organization = $1 AND (created_at, id) < (@before::timestamptz, @before_id::uuid)
ORDER BY created_at DESC, id DESC LIMIT @count;

-- name: ListDeliveriesOfRule :many
SELECT * FROM notification_deliveries
WHERE organization = $1 AND rule = $2 AND (created_at, id) < (@before::timestamptz, @before_id::uuid)
  AND (sqlc.narg(run)::uuid IS NULL OR run = sqlc.narg(run))
  AND (sqlc.narg(state)::text IS NULL OR state = sqlc.narg(state))
ORDER BY created_at DESC, id DESC LIMIT @count;

-- name: ListDeliveriesOfRun :many
SELECT * FROM notification_deliveries
WHERE organization = $1 AND run = @run::uuid AND (created_at, id) < (@before::timestamptz, @before_id::uuid)
  AND (sqlc.narg(state)::text IS NULL OR state = sqlc.narg(state))
ORDER BY created_at DESC, id DESC LIMIT @count;

-- name: ListDeliveriesInState :many
SELECT * FROM notification_deliveries
WHERE organization = $1 AND state = $2 AND (created_at, id) < (@before::timestamptz, @before_id::uuid)
ORDER BY created_at DESC, id DESC LIMIT @count;

-- name: ReplayDelivery :one
UPDATE notification_deliveries SET state = 'pending', attempts = 0, interruptions = 0, next_at = @now::timestamptz
WHERE organization = $1 AND id = $2
RETURNING *;

-- name: NextDelivery :many
SELECT next_at::timestamptz FROM notification_deliveries WHERE next_at > @after::timestamptz ORDER BY next_at LIMIT 1;

-- name: DueDeliveries :many
SELECT organization, rule, id FROM notification_deliveries WHERE next_at <= @now::timestamptz ORDER BY next_at LIMIT @count;

-- name: ClaimDelivery :one
UPDATE notification_deliveries
SET state = 'sending', claim = claim + 1, next_at = @until::timestamptz, interruptions = interruptions + (state = 'sending')::integer
WHERE organization = $1 AND id = $2 AND next_at <= @now::timestamptz
RETURNING *;

-- name: SettleDelivery :execrows
UPDATE notification_deliveries SET state = $4, attempts = $5, next_at = $6, error = $7, sent_at = coalesce($8, sent_at)
WHERE organization = $1 AND id = $2 AND claim = $3 AND state = 'sending';

-- name: InsertDeliveryAttempt :exec
INSERT INTO notification_attempts (organization, delivery, claim, number, at, status, error, took_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: NextWatch :many
SELECT watch_at::timestamptz FROM notification_rules WHERE watch_at > @after::timestamptz ORDER BY watch_at LIMIT 1;

-- name: DueWatches :many
SELECT organization, id FROM notification_rules WHERE watch_at <= @now::timestamptz ORDER BY watch_at LIMIT @count;

-- name: SetWatch :exec
UPDATE notification_rules SET watch_at = $3 WHERE organization = $1 AND id = $2;

-- name: WatchNoLater :execrows
UPDATE notification_rules SET watch_at = @at::timestamptz
WHERE organization = $1 AND id = $2 AND deleted_at IS NULL AND NOT paused AND (watch_at IS NULL OR watch_at > @at::timestamptz);
