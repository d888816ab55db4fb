-- name: InsertInspection :one
INSERT INTO inspections (organization, id, kind, state, connection, pipeline, number, resource, pattern, overlay, expires_at)
VALUES ($1, $2, $3, 'requested', $4, $5, $6, $7, $8, $9, now() + make_interval(secs => @keep::float8))
RETURNING *;

-- name: GetInspection :one
SELECT * FROM inspections WHERE organization = $1 AND id = $2 AND expires_at > now();

-- name: ListInspections :many
SELECT * FROM inspections
WHERE organization = $1 AND id < @before AND expires_at > now()
  AND (@connection::uuid = '00000000-0000-0000-0000-000000000000' OR connection = @connection)
  AND (@kind::text = '' OR kind = @kind) AND (@state::text = '' OR state = @state)
ORDER BY id DESC LIMIT @lim;

-- name: ClaimInspection :one
UPDATE inspections i SET state = 'running', claim = @claim::uuid, lease_until = now() + make_interval(secs => @lease::float8), started_at = now()
FROM (
    SELECT n.organization, n.id FROM inspections n WHERE n.state = 'requested'
    ORDER BY n.created_at LIMIT 1 FOR UPDATE SKIP LOCKED
) next
WHERE i.organization = next.organization AND i.id = next.id
RETURNING i.*;

-- name: ClaimInspectionOf :one
UPDATE inspections SET state = 'running', claim = @claim::uuid, lease_until = now() + make_interval(secs => @lease::float8), started_at = now()
WHERE organization = @organization AND id = @id AND state = 'requested'
RETURNING *;

-- name: RequestedInspections :many
SELECT organization, id FROM inspections
WHERE state = 'requested' AND created_at < now() - make_interval(secs => @age::float8) ORDER BY created_at LIMIT @most;

-- name: RenewInspection :execrows
UPDATE inspections SET lease_until = now() + make_interval(secs => @lease::float8)
WHERE organization = $1 AND id = $2 AND claim = @claim::uuid;

-- name: FinishInspection :execrows
UPDATE inspections SET state = @state, result = @result, error = @error, hint = @hint, claim = NULL, lease_until = NULL, ended_at = now()
WHERE organization = @organization AND id = @id AND claim = @claim::uuid;

-- name: FailLostInspections :exec
UPDATE inspections SET state = 'failed', error = @error, hint = @hint, claim = NULL, lease_until = NULL, ended_at = now()
WHERE state = 'running' AND lease_until < now();

-- name: DeleteExpiredInspections :exec
DELETE FROM inspections WHERE expires_at < now();

-- name: NextInspectionLease :one
SELECT coalesce(extract(epoch FROM min(lease_until) - now()), 0)::float8 FROM inspections WHERE state = 'running';
