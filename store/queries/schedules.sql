-- name: InsertSchedule :one
INSERT INTO schedules (organization, id, name, pipeline, cron, every_seconds, once_at, time_zone, anchor, jitter_seconds,
    overlap, catch_up, catch_up_limit, options, state, reason, next_instant, next_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
RETURNING *;

-- name: GetSchedule :one
SELECT * FROM schedules WHERE organization = $1 AND id = $2 AND deleted_at IS NULL;

-- name: LockSchedule :one
SELECT * FROM schedules WHERE organization = $1 AND id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE;

-- name: UpdateSchedule :one
UPDATE schedules SET name = $3, pipeline = $4, cron = $5, every_seconds = $6, once_at = $7, time_zone = $8, anchor = $9,
    jitter_seconds = $10, overlap = $11, catch_up = $12, catch_up_limit = $13, options = $14, state = $15, reason = $16,
    next_instant = $17, next_at = $18, revision = revision + (next_at IS DISTINCT FROM $18)::integer, version = version + 1, updated_at = now()
WHERE organization = $1 AND id = $2
RETURNING *;

-- name: DeleteSchedule :one
UPDATE schedules SET deleted_at = now(), next_instant = NULL, next_at = NULL, revision = revision + (next_at IS NOT NULL)::integer, version = version + 1, updated_at = now()
WHERE organization = $1 AND id = $2
RETURNING revision;

-- name: ListSchedules :many
SELECT * FROM schedules
WHERE organization = $1 AND deleted_at IS NULL AND id > @after
  AND (sqlc.narg(pipeline)::uuid IS NULL OR pipeline = sqlc.narg(pipeline))
  AND (sqlc.narg(state)::text IS NULL OR state = sqlc.narg(state))
ORDER BY id LIMIT @count;

-- name: ListOccurrences :many
SELECT * FROM schedule_occurrences
WHERE organization = $1 AND schedule = $2 AND instant < @before
ORDER BY instant DESC LIMIT @count;

-- name: NextScheduleDue :many
SELECT next_at::timestamptz FROM schedules WHERE next_at > @after::timestamptz ORDER BY next_at LIMIT 1;

-- name: NextOccurrenceDue :many
SELECT due_at::timestamptz FROM schedule_occurrences WHERE state = 'due' AND due_at > @after::timestamptz ORDER BY due_at LIMIT 1;

-- name: DueSchedules :many
SELECT organization, id FROM schedules WHERE next_at <= @now::timestamptz ORDER BY next_at LIMIT @count;

-- name: DueOccurrences :many
SELECT organization, schedule, instant FROM schedule_occurrences
WHERE state = 'due' AND due_at <= @now::timestamptz ORDER BY due_at, organization, schedule, instant LIMIT @count;

-- name: DueOccurrencesOf :many
SELECT instant FROM schedule_occurrences
WHERE organization = $1 AND schedule = $2 AND state = 'due' AND due_at <= @now::timestamptz ORDER BY instant LIMIT @count;

-- name: WakeOf :one
-- Of deleted ones too: they have no next firing.
SELECT revision, next_at FROM schedules WHERE organization = $1 AND id = $2;

-- name: Wakes :many
SELECT organization, id, revision, next_at::timestamptz AS next_at FROM schedules
WHERE next_at IS NOT NULL AND (organization, id) > (@after_organization::uuid, @after::uuid)
ORDER BY organization, id LIMIT @count;

-- name: AdvanceSchedule :one
UPDATE schedules SET state = $3, next_instant = $4, next_at = $5, last_instant = $6, revision = revision + (next_at IS DISTINCT FROM $5)::integer
WHERE organization = $1 AND id = $2
RETURNING revision;

-- name: InsertOccurrence :execrows
INSERT INTO schedule_occurrences (organization, schedule, instant, pipeline, state, reason, detail, missed, catching_up, due_at, concluded_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT DO NOTHING;

-- name: ParkSchedule :one
UPDATE schedules SET state = 'parked', reason = $3, next_instant = NULL, next_at = NULL, revision = revision + 1, version = version + 1, updated_at = now()
WHERE organization = $1 AND id = $2 AND state = 'active' AND deleted_at IS NULL
RETURNING *;

-- name: ClaimOccurrence :one
UPDATE schedule_occurrences SET due_at = @until::timestamptz, tries = tries + 1
WHERE organization = $1 AND schedule = $2 AND instant = $3 AND state = 'due' AND due_at <= @now::timestamptz
RETURNING *;

-- name: LockOccurrence :one
SELECT * FROM schedule_occurrences
WHERE organization = $1 AND schedule = $2 AND instant = $3 AND state = 'due' FOR UPDATE;

-- name: ConcludeOccurrence :exec
UPDATE schedule_occurrences SET state = $4, reason = $5, detail = $6, runs = $7, busy = $8, due_at = $9, concluded_at = $10
WHERE organization = $1 AND schedule = $2 AND instant = $3;

-- name: CountQueued :one
SELECT count(*) FROM schedule_occurrences
WHERE organization = $1 AND pipeline = $2 AND schedule = $3 AND state = 'queued' AND catching_up = $4;

-- name: LockPipelineQueue :exec
SELECT pg_advisory_xact_lock(hashtextextended('schedule queue ' || @organization::uuid || ' ' || @pipeline::uuid, 0));

-- name: ReleaseOccurrences :many
UPDATE schedule_occurrences o SET state = 'due', due_at = @now::timestamptz
FROM (SELECT DISTINCT ON (q.schedule) q.schedule, q.instant FROM schedule_occurrences q
      WHERE q.organization = $1 AND q.pipeline = $2 AND q.state = 'queued'
      ORDER BY q.schedule, q.instant) first
WHERE o.organization = $1 AND o.schedule = first.schedule AND o.instant = first.instant AND o.state = 'queued'
RETURNING o.schedule, o.instant;

-- name: DropOccurrences :exec
UPDATE schedule_occurrences SET state = 'skipped', reason = 'deleted', due_at = NULL, concluded_at = now()
WHERE organization = $1 AND schedule = $2 AND state IN ('due', 'queued');

-- name: HasOpenRun :one
SELECT EXISTS (SELECT FROM runs WHERE organization = $1 AND pipeline = @pipeline::uuid
    AND state IN ('scheduled', 'requested', 'running', 'paused'));
