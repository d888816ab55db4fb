-- name: InsertSecret :one
INSERT INTO secrets (organization, name, id, key, data_key, value) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (organization, name) DO NOTHING
RETURNING *;

-- name: UpdateSecret :one
UPDATE secrets SET id = $4, key = $5, data_key = $6, value = $7, version = version + 1, updated_at = now()
WHERE organization = $1 AND name = $2 AND version = $3
RETURNING *;

-- name: GetSecret :one
SELECT * FROM secrets WHERE organization = $1 AND name = $2;

-- name: LockSecret :one
SELECT * FROM secrets WHERE organization = $1 AND name = $2 FOR UPDATE;

-- name: DeleteSecret :exec
DELETE FROM secrets WHERE organization = $1 AND name = $2;

-- name: ListSecrets :many
SELECT * FROM secrets WHERE organization = $1 AND name > @after ORDER BY name LIMIT @lim;

-- name: SecretUsers :many
SELECT c.name FROM connection_secrets s
JOIN connections c ON c.organization = s.organization AND c.id = s.connection
WHERE s.organization = $1 AND s.secret = $2
ORDER BY c.name LIMIT 10;

-- name: SecretsNotUnder :many
SELECT * FROM secrets WHERE key < @key OR key > @key ORDER BY organization, name LIMIT @lim;

-- name: RewrapSecret :exec
UPDATE secrets SET key = @key, data_key = @data_key
WHERE organization = @organization AND name = @name AND id = @id AND key = @before_key;
