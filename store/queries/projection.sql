-- name: BeginHistory :exec
-- A row for each run that has none yet, with the connectors of its ends.
INSERT INTO run_history (organization, run, pipeline, pipeline_name, route_key, version, schedule, created_at, source, sink)
SELECT r.organization, r.id, r.pipeline, coalesce(nullif(r.title, ''), r.pipeline_name)::text, r.route_key, r.version, nullif(r.trigger->>'schedule', '')::uuid, r.created_at,
    coalesce(ends.source, ''), coalesce(ends.sink, '')
FROM runs r
LEFT JOIN LATERAL (
    SELECT (SELECT c.connector FROM json_array_elements(v.graph->'nodes') n
            JOIN connections c ON c.organization = v.organization AND c.id::text = n->>'connection' WHERE n->>'id' = p.source) AS source,
           (SELECT c.connector FROM json_array_elements(v.graph->'nodes') n
            JOIN connections c ON c.organization = v.organization AND c.id::text = n->>'connection' WHERE n->>'id' = p.sink) AS sink
    FROM pipeline_routes p
    JOIN pipeline_versions v ON v.organization = p.organization AND v.pipeline = p.pipeline AND v.number = p.number
    WHERE p.organization = r.organization AND p.pipeline = r.pipeline AND p.route_key = r.route_key
    ORDER BY p.number = r.pipeline_number DESC, p.number DESC LIMIT 1
) ends ON true
WHERE r.organization = $1 AND r.id = ANY (@runs::uuid[])
ON CONFLICT DO NOTHING;

-- name: LockHistory :many
SELECT * FROM run_history WHERE organization = $1 AND run = ANY (@runs::uuid[]) ORDER BY run FOR UPDATE;

-- name: UnfoldedFacts :many
-- The facts of each run after its number, in order.
SELECT f.run, f.number, f.id, f.type, f.version, f.at, f.nanos, f.payload
FROM run_history h
CROSS JOIN LATERAL (
    SELECT * FROM facts g
    WHERE g.organization = h.organization AND g.run = h.run AND g.number > h.folded
    ORDER BY g.number LIMIT @count
) f
WHERE h.organization = $1 AND h.run = ANY (@runs::uuid[])
ORDER BY f.run, f.number;

-- name: HistoryResources :many
SELECT * FROM run_resources WHERE organization = $1 AND run = ANY (@runs::uuid[]);

-- name: UpdateHistory :batchexec
UPDATE run_history SET folded = $3, state = $4, resumable = $5, error = $6, error_class = $7, hint = $8, started_at = $9, ended_at = $10,
    progressed_at = $11, attempts = $12, failures = $13, interruptions = $14, rows_read = $15, rows_applied = $16, rows_superseded = $17,
    rows_skipped = $18, rows_set_aside = $19, bytes = $20, cpu_ms = $21, peak_bytes = $22, memo = $23
WHERE organization = $1 AND run = $2;

-- name: UpsertResource :batchexec
INSERT INTO run_resources (organization, run, resource, state, target, read_mode, write_mode, splits, splits_done,
    rows_read, rows_applied, rows_superseded, rows_skipped, rows_set_aside, bytes, error, started_at, ended_at, counted)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
ON CONFLICT (organization, run, resource) DO UPDATE SET state = excluded.state, target = excluded.target, read_mode = excluded.read_mode,
    write_mode = excluded.write_mode, splits = excluded.splits, splits_done = excluded.splits_done, rows_read = excluded.rows_read,
    rows_applied = excluded.rows_applied, rows_superseded = excluded.rows_superseded, rows_skipped = excluded.rows_skipped,
    rows_set_aside = excluded.rows_set_aside, bytes = excluded.bytes, error = excluded.error, started_at = excluded.started_at,
    ended_at = excluded.ended_at, counted = excluded.counted;

-- name: UpsertCost :batchexec
INSERT INTO run_costs (organization, run, pipeline, at, compute_ms, memory_mib_ms, bytes)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (organization, run) DO UPDATE SET compute_ms = excluded.compute_ms, memory_mib_ms = excluded.memory_mib_ms, bytes = excluded.bytes;

-- name: AddMetrics :batchexec
INSERT INTO metrics_hourly AS m (organization, hour, pipeline, source, sink, resource, status, runs, rows_read, rows_written, rows_set_aside,
    bytes, duration_ms, min_ms, max_ms, compute_ms, memory_mib_ms, cpu_ms, moved_bytes, peak_bytes)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
ON CONFLICT (organization, hour, pipeline, source, sink, resource, status) DO UPDATE SET
    runs = m.runs + excluded.runs, rows_read = m.rows_read + excluded.rows_read, rows_written = m.rows_written + excluded.rows_written,
    rows_set_aside = m.rows_set_aside + excluded.rows_set_aside, bytes = m.bytes + excluded.bytes,
    duration_ms = m.duration_ms + excluded.duration_ms,
    min_ms = CASE WHEN excluded.runs = 0 THEN m.min_ms WHEN m.runs = 0 THEN excluded.min_ms ELSE least(m.min_ms, excluded.min_ms) END,
    max_ms = greatest(m.max_ms, excluded.max_ms), compute_ms = m.compute_ms + excluded.compute_ms,
    memory_mib_ms = m.memory_mib_ms + excluded.memory_mib_ms, cpu_ms = m.cpu_ms + excluded.cpu_ms,
    moved_bytes = m.moved_bytes + excluded.moved_bytes, peak_bytes = greatest(m.peak_bytes, excluded.peak_bytes);

-- name: AddDurations :batchexec
INSERT INTO metrics_durations AS m (organization, hour, pipeline, source, sink, resource, status, class, endings)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (organization, hour, pipeline, source, sink, resource, status, class) DO UPDATE SET endings = m.endings + excluded.endings;

-- name: LackingFacts :one
-- Runs of the history whose facts are not all there any more.
SELECT count(*) FROM run_history h WHERE h.organization = $1 AND h.folded > 0
    AND NOT EXISTS (SELECT FROM facts f WHERE f.organization = h.organization AND f.run = h.run AND f.number = 1);

-- name: ResetHistory :exec
UPDATE run_history SET muted = greatest(muted, folded), folded = 0, state = '', resumable = false, error = '', error_class = '', hint = '',
    started_at = NULL, ended_at = NULL, progressed_at = NULL, attempts = 0, failures = 0, interruptions = 0,
    rows_read = 0, rows_applied = 0, rows_superseded = 0, rows_skipped = 0, rows_set_aside = 0, bytes = 0, cpu_ms = 0, peak_bytes = 0, memo = '{}'
WHERE organization = $1;

-- name: ResetResources :exec
DELETE FROM run_resources WHERE organization = $1;

-- name: ResetCosts :exec
DELETE FROM run_costs WHERE organization = $1;

-- name: ResetMetrics :exec
DELETE FROM metrics_hourly WHERE organization = $1;

-- name: ResetDailyMetrics :exec
DELETE FROM metrics_daily WHERE organization = $1;

-- name: RelayAgain :exec
-- All facts of all runs wait for the projection again.
INSERT INTO fact_relays (organization, run, first, last)
SELECT r.organization, r.id, 1, r.last_fact FROM runs r WHERE r.organization = $1 AND r.last_fact > 0 ORDER BY r.id
ON CONFLICT DO NOTHING;

-- name: CountWaitingRuns :one
SELECT count(DISTINCT run) FROM fact_relays WHERE organization = $1;

-- name: WatchedPipelines :many
-- Each live pipeline with the last success of the route that is furthest behind.
SELECT p.id, p.name, min(coalesce(last.ended_at, p.created_at))::timestamptz AS since
FROM pipelines p
JOIN pipeline_routes r ON r.organization = p.organization AND r.pipeline = p.id AND r.number = p.current
LEFT JOIN LATERAL (
    SELECT h.ended_at FROM run_history h
    WHERE h.organization = p.organization AND h.pipeline = p.id AND h.route_key = r.route_key AND h.state = 'completed' AND h.ended_at IS NOT NULL
    ORDER BY h.ended_at DESC LIMIT 1
) last ON true
WHERE p.organization = $1 AND p.deleted_at IS NULL AND NOT p.paused
  AND (sqlc.narg(pipeline)::uuid IS NULL OR p.id = sqlc.narg(pipeline))
GROUP BY p.id, p.name;

-- name: WatchedRuns :many
SELECT run, pipeline, pipeline_name, coalesce(progressed_at, started_at, created_at)::timestamptz AS since
FROM run_history
WHERE organization = $1 AND state = 'running' AND (sqlc.narg(pipeline)::uuid IS NULL OR pipeline = sqlc.narg(pipeline));

-- name: PendingFacts :many
-- Runs whose facts wait for the projection, the longest waiting first.
SELECT organization, run, max(last)::bigint AS last FROM (
    SELECT organization, run, last, created_at FROM fact_relays ORDER BY created_at LIMIT @count
) r GROUP BY organization, run ORDER BY min(created_at);

-- name: UnconfirmedFacts :many
-- Runs whose facts wait for longer than that, with the range of these.
SELECT organization, run, min(first)::bigint AS first, max(last)::bigint AS last FROM (
    SELECT organization, run, first, last, created_at FROM fact_relays
    WHERE created_at < clock_timestamp() - make_interval(secs => @age::double precision)
    ORDER BY created_at LIMIT @count
) r GROUP BY organization, run ORDER BY min(created_at);

-- name: UnconfirmedFactsOfRun :one
-- The range of a run's facts that wait; 0: none does.
SELECT coalesce(min(first), 0)::bigint AS first, coalesce(max(last), 0)::bigint AS last FROM fact_relays
WHERE organization = $1 AND run = $2;

-- name: ConfirmFacts :batchexec
DELETE FROM fact_relays WHERE organization = $1 AND run = $2 AND last <= $3;
