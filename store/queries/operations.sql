-- Effects outside of the database.

-- name: RecordOperation :one
INSERT INTO operations (organization, id, kind, key, target, request, hash, next_at)
VALUES (organization(), @id, @kind, @key, @target, @request, @hash, clock_timestamp())
ON CONFLICT (organization, kind, key) DO NOTHING RETURNING *;

-- name: OperationOfKey :one
SELECT * FROM operations WHERE organization = organization() AND kind = @kind AND key = @key;

-- name: ClaimOperation :one
-- From here on an effect may be there, so that it is unknown until it is concluded.
UPDATE operations o SET state = 'unknown', attempts = o.attempts + 1, next_at = clock_timestamp() + make_interval(secs => @lease::double precision)
FROM (SELECT organization, id, state FROM operations
    WHERE operations.organization = organization() AND operations.id = @id AND next_at <= clock_timestamp() FOR UPDATE) was
WHERE o.organization = was.organization AND o.id = was.id
RETURNING o.*, was.state AS was;

-- name: ConcludeOperation :one
UPDATE operations SET state = @state, outcome = @outcome, error = @error,
    next_at = CASE WHEN @over::boolean THEN NULL ELSE clock_timestamp() + make_interval(secs => @wait::double precision) END,
    concluded_at = CASE WHEN @over THEN clock_timestamp() END
WHERE organization = organization() AND id = @id AND attempts = @attempts AND next_at IS NOT NULL
RETURNING *;

-- name: OpenOperations :many
SELECT id FROM operations WHERE organization = organization() AND kind = @kind AND target = @target AND next_at IS NOT NULL ORDER BY id;

-- name: DueOperations :many
SELECT organization, id FROM operations WHERE next_at <= clock_timestamp() AND kind = ANY (@kinds::text[]) ORDER BY next_at LIMIT @most;

-- name: NextOperation :one
-- Seconds until the next look; negative: none.
SELECT coalesce((SELECT greatest(extract(epoch FROM next_at - clock_timestamp()), 0) FROM operations
    WHERE next_at IS NOT NULL AND kind = ANY (@kinds::text[]) ORDER BY next_at LIMIT 1), -1)::float8 AS seconds;
