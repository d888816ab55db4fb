-- What is too old is deleted, some rows a transaction: @most.

-- name: OldFactPartitions :many
SELECT old_fact_partitions(make_interval(secs => @seconds::float8))::text AS month;

-- name: DropFactPartition :exec
SELECT drop_fact_partition(@month);

-- name: MakeFactPartitions :one
SELECT make_fact_partitions(@ahead)::integer AS made;

-- name: DeleteOldFacts :execrows
-- Those outside of the months' partitions.
DELETE FROM facts f USING (
    SELECT o.organization, o.run, o.number FROM facts o JOIN runs r ON r.organization = o.organization AND r.id = o.run
    WHERE o.run < uuid_at(now() - make_interval(secs => @seconds::float8)) AND r.state IN ('completed', 'failed', 'canceled')
    ORDER BY o.run LIMIT @most
) d WHERE f.organization = d.organization AND f.run = d.run AND f.number = d.number;

-- name: DeleteOldAudit :execrows
DELETE FROM audit_log a USING (
    SELECT organization, id FROM audit_log WHERE at < now() - make_interval(secs => @seconds::float8) ORDER BY at LIMIT @most
) d WHERE a.organization = d.organization AND a.id = d.id;

-- name: DeleteOldIdempotency :execrows
DELETE FROM idempotency i USING (
    SELECT organization, key, kind FROM idempotency WHERE created_at < now() - make_interval(secs => @seconds::float8) ORDER BY created_at LIMIT @most
) d WHERE i.organization = d.organization AND i.key = d.key AND i.kind = d.kind;

-- name: DeleteOldPlans :execrows
-- What workers needed of runs that will not go on; run and facts stay.
DELETE FROM resources p USING (
    SELECT o.organization, o.run, o.seq FROM runs r JOIN resources o ON o.organization = r.organization AND o.run = r.id
    WHERE r.state IN ('completed', 'failed', 'canceled') AND NOT r.resumable AND r.ended_at < now() - make_interval(secs => @seconds::float8)
    ORDER BY r.ended_at LIMIT @most
) d WHERE p.organization = d.organization AND p.run = d.run AND p.seq = d.seq;

-- name: DeleteOldSplits :execrows
DELETE FROM splits p USING (
    SELECT o.organization, o.run, o.id FROM runs r JOIN splits o ON o.organization = r.organization AND o.run = r.id
    WHERE r.state IN ('completed', 'failed', 'canceled') AND NOT r.resumable AND r.ended_at < now() - make_interval(secs => @seconds::float8)
    ORDER BY r.ended_at LIMIT @most
) d WHERE p.organization = d.organization AND p.run = d.run AND p.id = d.id;

-- name: DeleteOldArtifacts :execrows
DELETE FROM artifacts p USING (
    SELECT o.organization, o.run, o.resource, o.name FROM runs r JOIN artifacts o ON o.organization = r.organization AND o.run = r.id
    WHERE r.state IN ('completed', 'failed', 'canceled') AND NOT r.resumable AND r.ended_at < now() - make_interval(secs => @seconds::float8)
    ORDER BY r.ended_at LIMIT @most
) d WHERE p.organization = d.organization AND p.run = d.run AND p.resource = d.resource AND p.name = d.name;

-- name: DeleteOldSeenRows :execrows
DELETE FROM seen_rows p USING (
    SELECT o.organization, o.run, o.resource, o.id FROM runs r JOIN seen_rows o ON o.organization = r.organization AND o.run = r.id
    WHERE r.state IN ('completed', 'failed', 'canceled') AND NOT r.resumable AND r.ended_at < now() - make_interval(secs => @seconds::float8)
    ORDER BY r.ended_at LIMIT @most
) d WHERE p.organization = d.organization AND p.run = d.run AND p.resource = d.resource AND p.id = d.id;

-- name: DeleteOldRuns :execrows
-- With all that they have. A route's ordinals are kept with the route.
DELETE FROM runs r USING (
    SELECT organization, id FROM runs
    WHERE state IN ('completed', 'failed', 'canceled') AND ended_at < now() - make_interval(secs => @seconds::float8)
    ORDER BY ended_at LIMIT @most
) d WHERE r.organization = d.organization AND r.id = d.id;

-- name: DeleteOldDeliveries :execrows
-- Those that are settled, with their attempts.
DELETE FROM notification_deliveries n USING (
    SELECT organization, id FROM notification_deliveries
    WHERE next_at IS NULL AND created_at < now() - make_interval(secs => @seconds::float8) ORDER BY created_at LIMIT @most
) d WHERE n.organization = d.organization AND n.id = d.id;

-- name: DeleteOldOccurrences :execrows
DELETE FROM schedule_occurrences o USING (
    SELECT organization, schedule, instant FROM schedule_occurrences
    WHERE concluded_at < now() - make_interval(secs => @seconds::float8) ORDER BY concluded_at LIMIT @most
) d WHERE o.organization = d.organization AND o.schedule = d.schedule AND o.instant = d.instant;

-- name: DeleteOldOperations :execrows
DELETE FROM operations o USING (
    SELECT organization, id FROM operations
    WHERE concluded_at < now() - make_interval(secs => @seconds::float8) ORDER BY concluded_at LIMIT @most
) d WHERE o.organization = d.organization AND o.id = d.id;

-- name: DeleteOldHistory :execrows
-- With its resources and costs.
DELETE FROM run_history h USING (
    SELECT organization, run FROM run_history
    WHERE ended_at < now() - make_interval(secs => @seconds::float8) AND state IN ('completed', 'failed', 'canceled')
    ORDER BY ended_at LIMIT @most
) d WHERE h.organization = d.organization AND h.run = d.run;

-- name: DeleteOldMetrics :execrows
-- With their durations.
DELETE FROM metrics_hourly m USING (
    SELECT organization, hour, pipeline, source, sink, resource, status FROM metrics_hourly
    WHERE hour < now() - make_interval(secs => @seconds::float8) ORDER BY hour LIMIT @most
) d WHERE m.organization = d.organization AND m.hour = d.hour AND m.pipeline = d.pipeline AND m.source = d.source AND m.sink = d.sink
    AND m.resource = d.resource AND m.status = d.status;

-- name: DeleteOldDailyMetrics :execrows
-- With their durations, once none of the day's hours is kept.
DELETE FROM metrics_daily m USING (
    SELECT organization, day, pipeline, source, sink, resource, status FROM metrics_daily
    WHERE day < now() - make_interval(days => 1, secs => @seconds::float8) ORDER BY day LIMIT @most
) d WHERE m.organization = d.organization AND m.day = d.day AND m.pipeline = d.pipeline AND m.source = d.source AND m.sink = d.sink
    AND m.resource = d.resource AND m.status = d.status;

-- name: DeleteOldSchedules :execrows
-- Those that were deleted, once none of their occurrences is kept.
DELETE FROM schedules s USING (
    SELECT organization, id FROM schedules x WHERE deleted_at < now() - make_interval(secs => @seconds::float8)
        AND NOT EXISTS (SELECT FROM schedule_occurrences o WHERE o.organization = x.organization AND o.schedule = x.id)
    ORDER BY deleted_at LIMIT @most
) d WHERE s.organization = d.organization AND s.id = d.id;

-- name: DeleteOldRules :execrows
-- Those that were deleted, once none of their deliveries is kept.
DELETE FROM notification_rules r USING (
    SELECT organization, id FROM notification_rules x WHERE deleted_at < now() - make_interval(secs => @seconds::float8)
        AND NOT EXISTS (SELECT FROM notification_deliveries n WHERE n.organization = x.organization AND n.rule = x.id)
    ORDER BY deleted_at LIMIT @most
) d WHERE r.organization = d.organization AND r.id = d.id;
