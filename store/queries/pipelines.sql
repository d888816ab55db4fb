-- name: InsertPipeline :one
INSERT INTO pipelines (organization, id, name, description, current) VALUES ($1, $2, $3, $4, 1) RETURNING *;

-- name: LockPipeline :one
SELECT * FROM pipelines WHERE organization = $1 AND id = $2 AND deleted_at IS NULL FOR UPDATE;

-- name: UpdatePipeline :one
UPDATE pipelines SET name = $3, description = $4, current = $5, version = version + 1, updated_at = now()
WHERE organization = $1 AND id = $2
RETURNING *;

-- name: SetPipelinePaused :one
UPDATE pipelines SET paused = $3, version = version + 1, updated_at = now()
WHERE organization = $1 AND id = $2
RETURNING *;

-- name: DeletePipeline :exec
UPDATE pipelines SET deleted_at = now(), updated_at = now(), version = version + 1
WHERE organization = $1 AND id = $2;

-- name: GetPipeline :one
SELECT * FROM pipelines WHERE organization = $1 AND id = $2 AND deleted_at IS NULL;

-- name: GetPipelineByName :one
SELECT * FROM pipelines WHERE organization = $1 AND name = $2 AND deleted_at IS NULL;

-- name: ListPipelines :many
SELECT * FROM pipelines p
WHERE p.organization = $1 AND p.deleted_at IS NULL AND p.name > @after AND (@name::text = '' OR p.name = @name)
  AND (@connection::uuid = '00000000-0000-0000-0000-000000000000' OR EXISTS (
    SELECT FROM pipeline_uses u
    WHERE u.organization = p.organization AND u.pipeline = p.id AND u.number = p.current AND u.connection = @connection))
ORDER BY p.name LIMIT @lim;

-- name: InsertPipelineVersion :exec
INSERT INTO pipeline_versions (organization, pipeline, number, hash, graph, created_by) VALUES ($1, $2, $3, $4, $5, $6);

-- name: GetPipelineVersion :one
SELECT * FROM pipeline_versions WHERE organization = $1 AND pipeline = $2 AND number = $3;

-- name: PipelineVersions :many
-- The versions of several pipelines, one of each, in any order.
SELECT v.* FROM (SELECT unnest(@pipelines::uuid[]) AS pipeline, unnest(@numbers::bigint[]) AS number) w
JOIN pipeline_versions v ON v.organization = @organization AND v.pipeline = w.pipeline AND v.number = w.number;

-- name: ListPipelineVersions :many
SELECT * FROM pipeline_versions
WHERE organization = $1 AND pipeline = $2 AND number < @before
ORDER BY number DESC LIMIT @lim;

-- name: InsertPipelineUse :exec
INSERT INTO pipeline_uses (organization, pipeline, number, connection) VALUES ($1, $2, $3, $4);

-- name: InsertPipelineRoute :exec
INSERT INTO pipeline_routes (organization, pipeline, number, route_key, position, source, sink, name, hash)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: PipelineRoutes :many
-- The routes of several versions, those of a version in order.
SELECT r.* FROM (SELECT unnest(@pipelines::uuid[]) AS pipeline, unnest(@numbers::bigint[]) AS number) w
JOIN pipeline_routes r ON r.organization = @organization AND r.pipeline = w.pipeline AND r.number = w.number
ORDER BY r.pipeline, r.number, r.position;

-- name: GetRouteName :one
SELECT name FROM route_names WHERE organization = $1 AND pipeline = $2 AND route_key = $3;

-- name: InsertRouteName :execrows
INSERT INTO route_names (organization, pipeline, route_key, name) VALUES ($1, $2, $3, $4)
ON CONFLICT (organization, name) DO NOTHING;

-- name: DeleteRouteNames :exec
DELETE FROM route_names WHERE organization = $1 AND pipeline = $2;

-- name: RoutesNamed :many
-- The engine's routes that a route of a pipeline had, one for each pair of systems.
SELECT id, source, sink FROM routes WHERE organization = $1 AND pipeline = $2 ORDER BY id;

-- name: KnownResources :many
-- Which of the names a run of the pipeline had a plan for.
SELECT DISTINCT s.name FROM runs r
JOIN resources s ON s.organization = r.organization AND s.run = r.id
WHERE r.organization = $1 AND r.pipeline = @pipeline::uuid AND s.name = ANY (@names::text[])
ORDER BY s.name;

-- name: OpenRunOf :one
SELECT id, state FROM runs
WHERE organization = $1 AND pipeline = @pipeline::uuid AND state IN ('scheduled', 'requested', 'running', 'paused')
LIMIT 1;

-- name: HoldPipeline :one
-- Keeps a pipeline from ending, and from being paused, before the transaction does.
SELECT name, paused, deleted_at FROM pipelines WHERE organization = $1 AND id = $2 FOR SHARE;
