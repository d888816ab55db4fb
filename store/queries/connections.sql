-- name: InsertConnection :one
INSERT INTO connections (organization, id, name, role, connector, config, secrets)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING *;

-- name: UpdateConnection :one
UPDATE connections SET name = $4, config = $5, secrets = $6, version = version + 1, updated_at = now()
WHERE organization = $1 AND id = $2 AND version = $3 AND deleted_at IS NULL
RETURNING *;

-- name: InsertConnectionVersion :exec
INSERT INTO connection_versions (organization, connection, version, name, config, secrets, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: GetConnection :one
SELECT * FROM connections WHERE organization = $1 AND id = $2 AND deleted_at IS NULL;

-- name: GetConnectionByName :one
SELECT * FROM connections WHERE organization = $1 AND name = $2 AND deleted_at IS NULL;

-- name: LockConnection :one
SELECT * FROM connections WHERE organization = $1 AND id = $2 AND deleted_at IS NULL FOR UPDATE;

-- name: ShareConnections :many
-- Keeps live connections from ending before the transaction does.
SELECT id FROM connections
WHERE organization = $1 AND id = ANY (@ids::uuid[]) AND deleted_at IS NULL
ORDER BY id FOR SHARE;

-- name: DeleteConnection :exec
UPDATE connections SET deleted_at = now(), updated_at = now(), version = version + 1
WHERE organization = $1 AND id = $2;

-- name: ListConnections :many
SELECT * FROM connections
WHERE organization = $1 AND deleted_at IS NULL AND name > @after
  AND (@role::text = '' OR role = @role) AND (@connector::text = '' OR connector = @connector)
  AND (@name::text = '' OR name = @name)
ORDER BY name LIMIT @lim;

-- name: ListConnectionVersions :many
SELECT * FROM connection_versions
WHERE organization = $1 AND connection = $2 AND version < @before
ORDER BY version DESC LIMIT @lim;

-- name: ConnectionUsers :many
-- The live pipelines whose current version uses a connection.
SELECT p.name FROM pipeline_uses u
JOIN pipelines p ON p.organization = u.organization AND p.id = u.pipeline AND p.current = u.number AND p.deleted_at IS NULL
WHERE u.organization = $1 AND u.connection = $2
ORDER BY p.name LIMIT 10;

-- name: InsertConnectionSecret :exec
INSERT INTO connection_secrets (organization, connection, path, secret) VALUES ($1, $2, $3, $4);

-- name: DeleteConnectionSecrets :exec
DELETE FROM connection_secrets WHERE organization = $1 AND connection = $2;

-- name: DeleteOwnSecrets :exec
DELETE FROM secrets s WHERE s.organization = $1 AND s.owner = $2
  AND NOT EXISTS (SELECT FROM connection_secrets c WHERE c.organization = s.organization AND c.secret = s.name);

-- name: PutOwnSecret :exec
INSERT INTO secrets (organization, name, id, owner, key, data_key, value) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (organization, name) DO UPDATE SET id = excluded.id, owner = excluded.owner, key = excluded.key,
    data_key = excluded.data_key, value = excluded.value, version = secrets.version + 1, updated_at = now();
