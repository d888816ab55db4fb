-- name: SumMetrics :many
-- Buckets summed up by time and by the dimensions that are asked for: of the days
-- from days_since to days_before the daily sums, of the rest the hourly ones.
SELECT (CASE WHEN @bucket::text = '' THEN 'epoch'::timestamptz ELSE date_trunc(@bucket, m.hour, 'UTC') END)::timestamptz AS at,
    (CASE WHEN @by_pipeline::boolean THEN m.pipeline::text ELSE '' END)::text AS pipeline,
    (CASE WHEN @by_connector::boolean THEN m.source || '->' || m.sink ELSE '' END)::text AS connector,
    (CASE WHEN @by_resource::boolean THEN m.resource ELSE '' END)::text AS resource,
    (CASE WHEN @by_status::boolean THEN m.status ELSE '' END)::text AS status,
    sum(m.runs)::bigint AS runs, sum(m.rows_read)::bigint AS rows_read, sum(m.rows_written)::bigint AS rows_written, sum(m.bytes)::bigint AS bytes,
    sum(m.duration_ms)::bigint AS duration_ms, coalesce(min(m.min_ms) FILTER (WHERE m.runs > 0), 0)::bigint AS min_ms, max(m.max_ms)::bigint AS max_ms,
    sum(m.cpu_ms)::bigint AS cpu_ms, max(m.peak_bytes)::bigint AS peak_bytes
FROM (
    SELECT d.day AS hour, d.pipeline, d.source, d.sink, d.resource, d.status, d.runs, d.rows_read, d.rows_written, d.bytes, d.duration_ms, d.min_ms, d.max_ms, d.cpu_ms, d.peak_bytes FROM metrics_daily d
    WHERE d.organization = $1 AND d.day >= @days_since::timestamptz AND d.day < @days_before::timestamptz AND (@resources::boolean = (d.resource <> ''))
    UNION ALL
    SELECT h.hour, h.pipeline, h.source, h.sink, h.resource, h.status, h.runs, h.rows_read, h.rows_written, h.bytes, h.duration_ms, h.min_ms, h.max_ms, h.cpu_ms, h.peak_bytes FROM metrics_hourly h
    WHERE h.organization = $1 AND h.hour >= @since::timestamptz AND h.hour < @days_since::timestamptz AND (@resources::boolean = (h.resource <> ''))
    UNION ALL
    SELECT h.hour, h.pipeline, h.source, h.sink, h.resource, h.status, h.runs, h.rows_read, h.rows_written, h.bytes, h.duration_ms, h.min_ms, h.max_ms, h.cpu_ms, h.peak_bytes FROM metrics_hourly h
    WHERE h.organization = $1 AND h.hour >= @days_before::timestamptz AND h.hour < @before::timestamptz AND (@resources::boolean = (h.resource <> ''))
) m
WHERE (@resource::text = '' OR m.resource = @resource)
    AND (sqlc.narg(pipeline)::uuid IS NULL OR m.pipeline = sqlc.narg(pipeline))
    AND (@connector::text = '' OR m.source = @connector OR m.sink = @connector)
    AND (@status::text = '' OR m.status = @status)
GROUP BY 1, 2, 3, 4, 5 ORDER BY 2, 3, 4, 5, 1 LIMIT @count;

-- name: SumDurations :many
SELECT (CASE WHEN @bucket::text = '' THEN 'epoch'::timestamptz ELSE date_trunc(@bucket, m.hour, 'UTC') END)::timestamptz AS at,
    (CASE WHEN @by_pipeline::boolean THEN m.pipeline::text ELSE '' END)::text AS pipeline,
    (CASE WHEN @by_connector::boolean THEN m.source || '->' || m.sink ELSE '' END)::text AS connector,
    (CASE WHEN @by_resource::boolean THEN m.resource ELSE '' END)::text AS resource,
    (CASE WHEN @by_status::boolean THEN m.status ELSE '' END)::text AS status,
    m.class, sum(m.endings)::bigint AS endings
FROM (
    SELECT d.day AS hour, d.pipeline, d.source, d.sink, d.resource, d.status, d.class, d.endings FROM metrics_daily_durations d
    WHERE d.organization = $1 AND d.day >= @days_since::timestamptz AND d.day < @days_before::timestamptz AND (@resources::boolean = (d.resource <> ''))
    UNION ALL
    SELECT h.hour, h.pipeline, h.source, h.sink, h.resource, h.status, h.class, h.endings FROM metrics_durations h
    WHERE h.organization = $1 AND h.hour >= @since::timestamptz AND h.hour < @days_since::timestamptz AND (@resources::boolean = (h.resource <> ''))
    UNION ALL
    SELECT h.hour, h.pipeline, h.source, h.sink, h.resource, h.status, h.class, h.endings FROM metrics_durations h
    WHERE h.organization = $1 AND h.hour >= @days_before::timestamptz AND h.hour < @before::timestamptz AND (@resources::boolean = (h.resource <> ''))
) m
WHERE (@resource::text = '' OR m.resource = @resource)
    AND (sqlc.narg(pipeline)::uuid IS NULL OR m.pipeline = sqlc.narg(pipeline))
    AND (@connector::text = '' OR m.source = @connector OR m.sink = @connector)
    AND (@status::text = '' OR m.status = @status)
GROUP BY 1, 2, 3, 4, 5, 6;

-- name: PipelineNames :many
-- Those of deleted ones too.
SELECT id, name FROM pipelines WHERE organization = $1 AND id = ANY (@ids::uuid[]);

-- name: RouteHealth :many
-- A row for each route of the pipelines from one name on.
SELECT p.id, p.name, p.paused, r.route_key, p.created_at,
    coalesce(last.run, '00000000-0000-0000-0000-000000000000')::uuid AS last_run, coalesce(last.state, '')::text AS last_state, coalesce(last.error, '')::text AS last_error,
    success.started_at AS success_started_at, success.ended_at AS success_ended_at, failure.ended_at AS failure_ended_at,
    (SELECT count(*) FROM (
        SELECT FROM run_history h
        WHERE h.organization = p.organization AND h.pipeline = p.id AND h.route_key = r.route_key AND h.state = 'failed'
            AND h.ended_at > coalesce(success.ended_at, '-infinity') LIMIT 1000
    ) f)::bigint AS failures,
    (SELECT coalesce(min(n.stale_seconds), 0) FROM notification_rules n
     WHERE n.organization = p.organization AND n.deleted_at IS NULL AND NOT n.paused AND n.stale_seconds > 0
        AND (n.pipeline IS NULL OR n.pipeline = p.id))::bigint AS expected_seconds
FROM (SELECT * FROM pipelines q WHERE q.organization = $1 AND q.deleted_at IS NULL AND q.name > @after
        AND (sqlc.narg(pipeline)::uuid IS NULL OR q.id = sqlc.narg(pipeline)) ORDER BY q.name LIMIT @count) p
JOIN pipeline_routes r ON r.organization = p.organization AND r.pipeline = p.id AND r.number = p.current
LEFT JOIN LATERAL (
    SELECT h.run, h.state, h.error FROM run_history h
    WHERE h.organization = p.organization AND h.pipeline = p.id AND h.route_key = r.route_key ORDER BY h.created_at DESC, h.run DESC LIMIT 1
) last ON true
LEFT JOIN LATERAL (
    SELECT h.started_at, h.ended_at FROM run_history h
    WHERE h.organization = p.organization AND h.pipeline = p.id AND h.route_key = r.route_key AND h.state = 'completed' AND h.ended_at IS NOT NULL
    ORDER BY h.ended_at DESC LIMIT 1
) success ON true
LEFT JOIN LATERAL (
    SELECT h.ended_at FROM run_history h
    WHERE h.organization = p.organization AND h.pipeline = p.id AND h.route_key = r.route_key AND h.state = 'failed' AND h.ended_at IS NOT NULL
    ORDER BY h.ended_at DESC LIMIT 1
) failure ON true
ORDER BY p.name, r.position;

-- name: SumCosts :many
SELECT key, runs, compute_ms, memory_mib_ms, bytes FROM (
    SELECT (CASE @by::text WHEN 'run' THEN c.run::text WHEN 'day' THEN to_char(c.at AT TIME ZONE 'UTC', 'YYYY-MM-DD')
            ELSE coalesce(c.pipeline, '00000000-0000-0000-0000-000000000000')::text END)::text AS key,
        count(*)::bigint AS runs, sum(c.compute_ms)::bigint AS compute_ms, sum(c.memory_mib_ms)::bigint AS memory_mib_ms, sum(c.bytes)::bigint AS bytes
    FROM run_costs c
    WHERE c.organization = $1 AND c.at >= @since::timestamptz AND c.at < @before::timestamptz
        AND (sqlc.narg(pipeline)::uuid IS NULL OR c.pipeline = sqlc.narg(pipeline))
    GROUP BY 1
) sums WHERE key > @after::text ORDER BY key LIMIT @count;
