-- The engine's State. Row-level security keeps each query in its organization.

-- name: GetInstallation :one
SELECT installation FROM organizations WHERE id = organization();

-- name: FindRoute :one
SELECT * FROM routes WHERE organization = organization() AND pipeline = $1 AND source = $2 AND sink = $3;

-- name: LockRoute :one
SELECT * FROM routes WHERE organization = organization() AND pipeline = $1 AND source = $2 AND sink = $3 FOR NO KEY UPDATE;

-- name: LockRouteByID :one
SELECT * FROM routes WHERE organization = organization() AND id = $1 FOR NO KEY UPDATE;

-- name: InsertRoute :exec
INSERT INTO routes (organization, id, installation, pipeline, source, sink)
VALUES (organization(), $1, $2, $3, $4, $5) ON CONFLICT (organization, pipeline, source, sink) DO NOTHING;

-- name: RaiseRoute :exec
UPDATE routes SET last_ordinal = @ordinal WHERE organization = organization() AND id = @id AND last_ordinal < @ordinal;

-- name: GetCursor :one
SELECT c.cursor, c.seen, c.reset_ordinal > 0 AS reset FROM cursors c
JOIN routes r ON r.organization = c.organization AND r.id = c.route
WHERE r.organization = organization() AND r.pipeline = $1 AND r.source = $2 AND r.sink = $3 AND c.resource = $4;

-- name: AdoptCursor :exec
INSERT INTO cursors AS c (organization, route, resource, cursor, seen) VALUES (organization(), $1, $2, $3, $4)
ON CONFLICT (organization, route, resource) DO UPDATE SET cursor = excluded.cursor, seen = excluded.seen WHERE c.reset_ordinal = 0;

-- name: ResetCursor :exec
INSERT INTO cursors (organization, route, resource, reset_ordinal) VALUES (organization(), $1, $2, $3)
ON CONFLICT (organization, route, resource) DO UPDATE SET cursor = NULL, seen = NULL, reset_ordinal = excluded.reset_ordinal;

-- name: MoveResets :exec
UPDATE cursors SET reset_ordinal = @ordinal WHERE organization = organization() AND route = @route AND reset_ordinal BETWEEN 1 AND @ordinal;

-- name: GetRun :one
SELECT sqlc.embed(r), coalesce(o.installation, '') AS installation, coalesce(o.source, '') AS source, coalesce(o.sink, '') AS sink
FROM runs r LEFT JOIN routes o ON o.organization = r.organization AND o.id = r.route
WHERE r.organization = organization() AND r.id = $1;

-- name: LockRun :one
SELECT * FROM runs WHERE organization = organization() AND id = $1 FOR NO KEY UPDATE;

-- name: ListEngineRuns :many
SELECT sqlc.embed(r), coalesce(o.installation, '') AS installation, coalesce(o.source, '') AS source, coalesce(o.sink, '') AS sink
FROM runs r LEFT JOIN routes o ON o.organization = r.organization AND o.id = r.route
WHERE r.organization = organization()
ORDER BY r.created_at DESC, r.id DESC LIMIT $1;

-- name: ListEngineRunsOfPipeline :many
SELECT sqlc.embed(r), coalesce(o.installation, '') AS installation, coalesce(o.source, '') AS source, coalesce(o.sink, '') AS sink
FROM runs r LEFT JOIN routes o ON o.organization = r.organization AND o.id = r.route
WHERE r.organization = organization() AND r.pipeline_name = $1
ORDER BY r.created_at DESC, r.id DESC LIMIT $2;

-- name: LockOpenRuns :many
-- The route's runs that may go on, and one more: lower ids are locked first.
SELECT id FROM runs WHERE organization = organization()
    AND (route = @route::uuid AND (state IN ('scheduled', 'requested', 'running', 'paused') OR state = 'failed' AND resumable) OR id = @also::uuid)
ORDER BY id FOR NO KEY UPDATE;

-- name: ListOpenRuns :many
SELECT r.id, r.version, r.desired, coalesce(r.ordinal, 0)::bigint AS ordinal, r.state, EXISTS (SELECT FROM slots s
        WHERE s.organization = r.organization AND s.run = r.id AND s.holder <> '' AND s.expires > clock_timestamp()) AS leased
FROM runs r WHERE r.organization = organization() AND r.route = @route::uuid
    AND (r.state IN ('scheduled', 'requested', 'running', 'paused') OR r.state = 'failed' AND r.resumable)
ORDER BY r.ordinal DESC;

-- name: InsertEngineRun :exec
INSERT INTO runs (organization, id, pipeline_name, version, route, ordinal, state, started_at)
VALUES (organization(), @id, @pipeline_name, @version, @route::uuid, @ordinal::bigint, @state, now());

-- name: StartRun :exec
UPDATE runs SET state = 'running', resumable = false, error = '', error_class = '', ended_at = NULL, desired = 'run',
    started_at = coalesce(started_at, now())
WHERE organization = organization() AND id = $1;

-- name: BeginRun :exec
-- A requested run begins, or goes on: what its owner wants of it stays.
UPDATE runs SET state = 'running', route = @route::uuid, ordinal = @ordinal::bigint, resumable = false, error = '', error_class = '', ended_at = NULL,
    started_at = coalesce(started_at, now())
WHERE organization = organization() AND id = @id;

-- name: EndRun :exec
UPDATE runs SET state = @state, resumable = @resumable, error = @error, error_class = @error_class,
    receipt = coalesce(sqlc.narg('receipt')::json, receipt), ended_at = now()
WHERE organization = organization() AND id = @id;

-- name: AdoptRun :exec
-- keep: the run is being worked on, and its state stays.
UPDATE runs SET route = @route::uuid, ordinal = @ordinal::bigint, planned = true, error = '', error_class = '',
    state = CASE WHEN @keep::boolean THEN state ELSE 'failed' END, resumable = NOT @keep::boolean,
    desired = CASE WHEN @keep::boolean THEN desired ELSE 'run' END,
    ended_at = CASE WHEN @keep::boolean THEN NULL ELSE now() END
WHERE organization = organization() AND id = @id;

-- name: InsertAdoptedRun :exec
-- It belongs to the stored pipeline of the run for which it is adopted, if any,
-- and is resumed with its document: its own is not known.
INSERT INTO runs (organization, id, pipeline, pipeline_name, version, route_key, route, ordinal, state, resumable, started_at, ended_at)
SELECT organization(), @id, f.pipeline, @pipeline_name, coalesce(f.version, @version::text) AS version, coalesce(f.route_key, ''), @route::uuid, @ordinal::bigint, 'failed', true, now(), now()
FROM (SELECT 1) AS one LEFT JOIN runs f ON f.organization = organization() AND f.id = @adopter;

-- name: SetRunPlanned :exec
UPDATE runs SET planned = true WHERE organization = organization() AND id = $1;

-- name: SetRunOrdinal :exec
UPDATE runs SET ordinal = @ordinal::bigint WHERE organization = organization() AND id = @id;

-- name: SetRunDesired :exec
UPDATE runs SET desired = $2 WHERE organization = organization() AND id = $1;

-- name: OrdinalTaken :one
SELECT EXISTS (SELECT FROM runs WHERE organization = organization() AND route = @route::uuid AND ordinal = @ordinal::bigint AND id <> @id);

-- name: CountAttempt :one
UPDATE runs SET attempts = attempts + 1 WHERE organization = organization() AND id = $1 RETURNING attempts;

-- name: GetSlotGeneration :one
SELECT coalesce((SELECT generation FROM slots WHERE organization = organization() AND run = $1 AND slot = $2), 0)::bigint AS generation;

-- name: AcquireSlot :one
INSERT INTO slots AS s (organization, run, slot, generation, holder, expires)
VALUES (organization(), @run, @slot, 1, @holder, clock_timestamp() + make_interval(secs => @ttl::float8))
ON CONFLICT (organization, run, slot) DO UPDATE SET generation = s.generation + 1, holder = excluded.holder, expires = excluded.expires, renewed = clock_timestamp()
WHERE s.holder = '' OR s.expires <= clock_timestamp()
RETURNING generation;

-- name: FreeSlot :exec
UPDATE slots SET holder = '', expires = clock_timestamp() WHERE organization = organization() AND run = $1 AND slot = $2;

-- name: ReturnSlotSplits :exec
UPDATE splits SET owner = NULL, owner_generation = NULL
WHERE organization = organization() AND run = $1 AND owner = $2 AND NOT done;

-- name: VoidSlots :exec
UPDATE slots SET generation = generation + 1, holder = '', expires = clock_timestamp() WHERE organization = organization() AND run = $1;

-- name: ReturnRunSplits :exec
UPDATE splits SET owner = NULL, owner_generation = NULL
WHERE organization = organization() AND run = $1 AND NOT done AND owner IS NOT NULL;

-- name: RenewLease :one
-- One statement, which locks nothing but the slot.
WITH renewed AS (
    UPDATE slots AS u SET expires = clock_timestamp() + make_interval(secs => @ttl::float8), renewed = clock_timestamp()
    WHERE u.organization = organization() AND u.run = @run AND u.slot = @slot AND u.generation = @generation AND u.holder <> ''
    RETURNING u.slot
)
SELECT coalesce(s.generation, 0)::bigint AS generation, EXISTS (SELECT FROM renewed) AS held, r.desired
FROM runs r LEFT JOIN slots s ON s.organization = r.organization AND s.run = r.id AND s.slot = @slot
WHERE r.organization = organization() AND r.id = @run;

-- name: LoadPlan :many
SELECT r.planned, coalesce(p.plan, 'null') AS plan FROM runs r
LEFT JOIN resources p ON p.organization = r.organization AND p.run = r.id
WHERE r.organization = organization() AND r.id = $1 ORDER BY p.seq;

-- name: InsertResource :exec
INSERT INTO resources (organization, run, seq, name, generation, plan) VALUES (organization(), $1, $2, $3, $4, $5);

-- name: InsertSplits :exec
INSERT INTO splits (organization, run, id, resource, resource_seq, seq, kind, generation, claim)
SELECT organization(), @run, unnest(@ids::text[]), @resource, @resource_seq, generate_series(0, cardinality(@ids::text[]) - 1),
    unnest(@kinds::text[]), @generation, @claim;

-- name: GetResourcePlan :one
SELECT p.seq, p.generation, p.plan, max(s.claim)::bigint AS claim, bool_or(s.kind = 'publish' AND s.done)::boolean AS published
FROM resources p JOIN splits s ON s.organization = p.organization AND s.run = p.run AND s.resource = p.name
WHERE p.organization = organization() AND p.run = $1 AND p.name = $2
GROUP BY p.organization, p.run, p.seq;

-- name: DeleteSplits :exec
DELETE FROM splits WHERE organization = organization() AND run = @run AND (resource = sqlc.narg('resource') OR sqlc.narg('resource') IS NULL);

-- name: DeleteArtifacts :exec
DELETE FROM artifacts WHERE organization = organization() AND run = @run AND (resource = sqlc.narg('resource') OR sqlc.narg('resource') IS NULL);

-- name: DeleteSeenRows :exec
DELETE FROM seen_rows WHERE organization = organization() AND run = @run AND (resource = sqlc.narg('resource') OR sqlc.narg('resource') IS NULL);

-- name: DeleteResources :exec
DELETE FROM resources WHERE organization = organization() AND run = @run AND (name = sqlc.narg('resource') OR sqlc.narg('resource') IS NULL);

-- name: AdoptSplit :exec
UPDATE splits SET claim = @claim, epoch = @epoch, position = @position, done = @done, totals = @totals
WHERE organization = organization() AND run = @run AND id = @id;

-- name: AdoptPublished :exec
UPDATE splits SET done = true WHERE organization = organization() AND run = $1 AND resource = $2;

-- name: NextSplit :one
-- Publishing comes first, so that a resource becomes visible as soon as its last
-- row is there; then reading in plan order, which sets all slots to the same
-- resource. A split of a slot whose lease is over is nobody's.
SELECT s.id, s.resource, s.kind, s.claim, s.epoch, s.position, s.totals, s.generation FROM splits s
LEFT JOIN slots o ON o.organization = s.organization AND o.run = s.run AND o.slot = s.owner AND o.generation = s.owner_generation
    AND o.holder <> '' AND o.expires > clock_timestamp()
WHERE s.organization = organization() AND s.run = @run AND NOT s.done AND o.slot IS NULL
    AND s.resource <> ALL (@exclude::text[])
    AND (s.kind = 'read' OR NOT EXISTS (SELECT FROM splits r WHERE r.organization = s.organization AND r.run = s.run
        AND r.kind = 'read' AND r.resource_seq = s.resource_seq AND NOT r.done))
ORDER BY s.kind, s.resource_seq, s.seq LIMIT 1;

-- name: AnySplitOpen :one
SELECT EXISTS (SELECT FROM splits WHERE organization = organization() AND run = @run AND NOT done AND resource <> ALL (@exclude::text[]));

-- name: ClaimSplit :exec
UPDATE splits SET claim = $3, owner = $4, owner_generation = $5 WHERE organization = organization() AND run = $1 AND id = $2;

-- name: GetSplit :one
SELECT resource, kind, claim, done, coalesce(owner = @slot::integer AND owner_generation = @generation::bigint, false)::boolean AS mine
FROM splits WHERE organization = organization() AND run = @run AND id = @id;

-- name: RaiseClaim :exec
UPDATE splits SET claim = $3 WHERE organization = organization() AND run = $1 AND id = $2;

-- name: ReturnSplit :execrows
UPDATE splits SET owner = NULL, owner_generation = NULL
WHERE organization = organization() AND run = @run AND id = @id AND claim = @claim
    AND (done OR owner IS NULL OR owner = @slot::integer AND owner_generation = @generation::bigint);

-- name: CommitProgress :one
SELECT commit_progress(@run, @slot, @generation, @split, @claim, @kind, @epoch, sqlc.narg('position')::json, @done, @totals,
    @artifact_names::text[], @artifact_bodies::text[], @seen,
    @fact_ids::uuid[], @fact_types::text[], @fact_versions::integer[], @fact_ats::timestamptz[], @fact_nanos::integer[], @fact_payloads::text[],
    sqlc.narg('next_cursor')::json, @next_seen)::text[] AS outcome;

-- name: AddFacts :one
SELECT add_facts(@run, false, @ids::uuid[], @types::text[], @versions::integer[], @ats::timestamptz[], @nanos::integer[], @payloads::text[])::bigint;

-- name: ListSplits :many
SELECT s.id, s.resource, s.kind, s.claim, s.epoch, s.position, s.totals, s.generation, s.done, (NOT s.done AND o.slot IS NOT NULL)::boolean AS owned
FROM splits s LEFT JOIN slots o ON o.organization = s.organization AND o.run = s.run AND o.slot = s.owner AND o.generation = s.owner_generation
    AND o.holder <> '' AND o.expires > clock_timestamp()
WHERE s.organization = organization() AND s.run = $1 ORDER BY s.resource_seq, s.seq;

-- name: ListArtifacts :many
SELECT body FROM artifacts WHERE organization = organization() AND run = $1 AND resource = $2 ORDER BY name;

-- name: ListSeenRows :many
SELECT ids FROM seen_rows WHERE organization = organization() AND run = $1 AND resource = $2;

-- name: ListFacts :many
SELECT number, id, type, version, at, nanos, payload FROM facts
WHERE organization = organization() AND run = $1 AND number > $2 ORDER BY number LIMIT $3;

-- name: DeleteOffer :exec
DELETE FROM attempt_offers WHERE organization = organization() AND run = $1 AND slot = $2;

-- name: RunExists :one
SELECT EXISTS (SELECT FROM runs WHERE organization = organization() AND id = $1);

-- name: CountStandingRows :one
-- Rows that an unfinished run has appended to live targets, where they stay (P21).
SELECT coalesce(sum((s.totals ->> 'rows_applied')::bigint), 0)::bigint FROM splits s
JOIN resources p ON p.organization = s.organization AND p.run = s.run AND p.name = s.resource
WHERE s.organization = organization() AND s.run = $1 AND s.kind = 'read'
    AND p.plan ->> 'write' = 'append' AND NOT coalesce((p.plan -> 'target' ->> 'staged')::boolean, false)
    AND NOT EXISTS (SELECT FROM splits d WHERE d.organization = s.organization AND d.run = s.run AND d.resource = s.resource AND d.kind = 'publish' AND d.done);
