-- name: LockAccess :exec
-- Changes of who is an admin wait for each other.
SELECT pg_advisory_xact_lock(hashtextextended('access ' || @organization::uuid, 0));

-- name: CountAdmins :one
SELECT (SELECT count(*) FROM members m WHERE m.organization = $1 AND m.role = 'admin' AND m.deleted_at IS NULL)
     + (SELECT count(*) FROM service_accounts s WHERE s.organization = $1 AND s.role = 'admin' AND s.deleted_at IS NULL) AS admins;

-- name: ListMembers :many
SELECT * FROM members WHERE organization = $1 AND deleted_at IS NULL AND id > @after ORDER BY id LIMIT @size;

-- name: GetMember :one
SELECT * FROM members WHERE organization = $1 AND id = $2 AND deleted_at IS NULL;

-- name: GetMemberForUpdate :one
SELECT * FROM members WHERE organization = $1 AND id = $2 AND deleted_at IS NULL FOR UPDATE;

-- name: FindMemberForUpdate :one
-- By identity, or by an address that nobody signed in with yet.
SELECT * FROM members m
WHERE m.organization = $1 AND m.deleted_at IS NULL
  AND (m.issuer = @issuer AND m.subject = @subject OR m.subject IS NULL AND lower(m.email) = lower(@email))
ORDER BY m.subject NULLS LAST LIMIT 1 FOR UPDATE;

-- name: InsertMember :one
INSERT INTO members (organization, id, name, email, issuer, subject, role) VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING *;

-- name: UpdateMember :one
UPDATE members SET name = $3, role = $4, version = version + 1, updated_at = now()
WHERE organization = $1 AND id = $2 AND deleted_at IS NULL RETURNING *;

-- name: SeeMember :one
UPDATE members SET issuer = $3, subject = $4, role = $5, last_seen_at = now(),
    version = version + CASE WHEN role <> $5 OR subject IS NULL THEN 1 ELSE 0 END
WHERE organization = $1 AND id = $2 AND deleted_at IS NULL RETURNING *;

-- name: DeleteMember :exec
UPDATE members SET deleted_at = now(), version = version + 1 WHERE organization = $1 AND id = $2 AND deleted_at IS NULL;

-- name: ListServiceAccounts :many
SELECT * FROM service_accounts WHERE organization = $1 AND deleted_at IS NULL AND id > @after ORDER BY id LIMIT @size;

-- name: GetServiceAccount :one
SELECT * FROM service_accounts WHERE organization = $1 AND id = $2 AND deleted_at IS NULL;

-- name: GetServiceAccountForUpdate :one
SELECT * FROM service_accounts WHERE organization = $1 AND id = $2 AND deleted_at IS NULL FOR UPDATE;

-- name: InsertServiceAccount :one
INSERT INTO service_accounts (organization, id, name, description, role) VALUES ($1, $2, $3, $4, $5) RETURNING *;

-- name: UpdateServiceAccount :one
UPDATE service_accounts SET name = $3, description = $4, role = $5, version = version + 1, updated_at = now()
WHERE organization = $1 AND id = $2 AND deleted_at IS NULL RETURNING *;

-- name: DeleteServiceAccount :exec
UPDATE service_accounts SET deleted_at = now(), version = version + 1 WHERE organization = $1 AND id = $2 AND deleted_at IS NULL;

-- name: ListKeys :many
SELECT * FROM api_keys WHERE organization = $1 AND id > @after ORDER BY id LIMIT @size;

-- name: ListKeysOfAccount :many
SELECT * FROM api_keys WHERE organization = $1 AND service_account = $2 AND id > @after ORDER BY id LIMIT @size;

-- name: GetKey :one
SELECT * FROM api_keys WHERE organization = $1 AND id = $2;

-- name: GetKeyForUpdate :one
SELECT * FROM api_keys WHERE organization = $1 AND id = $2 FOR UPDATE;

-- name: InsertKey :one
INSERT INTO api_keys (organization, id, service_account, name, prefix, hash, role, scopes, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING *;

-- name: EndKey :exec
-- A rotated key goes on for a while, but never longer than it would have.
UPDATE api_keys SET rotated_to = $3, expires_at = least(expires_at, now() + make_interval(secs => @overlap))
WHERE organization = $1 AND id = $2;

-- name: RevokeKey :one
UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE organization = $1 AND id = $2 RETURNING *;

-- name: RevokeKeysOfAccount :exec
UPDATE api_keys SET revoked_at = now() WHERE organization = $1 AND service_account = $2 AND revoked_at IS NULL;

-- name: ListAudit :many
SELECT * FROM audit_log
WHERE organization = $1 AND id < @before
  AND (sqlc.narg('actor')::uuid IS NULL OR actor_id = sqlc.narg('actor'))
  AND (sqlc.narg('action')::text IS NULL OR action = sqlc.narg('action'))
  AND (sqlc.narg('kind')::text IS NULL OR kind = sqlc.narg('kind'))
  AND (sqlc.narg('since')::timestamptz IS NULL OR at >= sqlc.narg('since'))
  AND (sqlc.narg('until')::timestamptz IS NULL OR at < sqlc.narg('until'))
ORDER BY id DESC LIMIT @size;

-- name: ListAuditOfObject :many
SELECT * FROM audit_log
WHERE organization = $1 AND object = $2 AND id < @before
  AND (sqlc.narg('actor')::uuid IS NULL OR actor_id = sqlc.narg('actor'))
  AND (sqlc.narg('action')::text IS NULL OR action = sqlc.narg('action'))
  AND (sqlc.narg('kind')::text IS NULL OR kind = sqlc.narg('kind'))
  AND (sqlc.narg('since')::timestamptz IS NULL OR at >= sqlc.narg('since'))
  AND (sqlc.narg('until')::timestamptz IS NULL OR at < sqlc.narg('until'))
ORDER BY id DESC LIMIT @size;

-- name: FindOrganization :one
SELECT * FROM organizations WHERE key = $1 AND deleted_at IS NULL;

-- name: ListOrganizations :many
SELECT * FROM organizations WHERE deleted_at IS NULL ORDER BY created_at, id LIMIT $1;

-- name: AnyOrganization :one
-- Deleted ones count: an installation is bootstrapped once.
SELECT EXISTS (SELECT FROM organizations);

-- name: LockBootstrap :exec
SELECT pg_advisory_xact_lock(hashtextextended('tranship bootstrap', 0));
