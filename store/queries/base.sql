-- name: InsertOrganization :exec
INSERT INTO organizations (id, key, name) VALUES ($1, $2, $3);

-- name: GetOrganization :one
SELECT * FROM organizations WHERE id = $1 AND deleted_at IS NULL;

-- name: InsertAudit :exec
INSERT INTO audit_log (organization, id, actor_kind, actor_id, actor_key, actor_name, actor_role, request_id, action, kind, object, before, after)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- name: LockIdempotencyKey :exec
SELECT pg_advisory_xact_lock(hashtextextended(@organization::uuid || ' ' || @key::text, 0));

-- name: GetIdempotency :many
SELECT kind, hash, object FROM idempotency WHERE organization = $1 AND key = $2;

-- name: InsertIdempotency :exec
INSERT INTO idempotency (organization, key, kind, hash, object) VALUES ($1, $2, $3, $4, $5);
