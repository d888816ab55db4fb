-- Where attempts run, and the containers that were started for them.

-- name: DemandOf :one
-- What the choice of an attempt's compute depends on; the last run is the newest
-- of the route that completed.
SELECT r.policy, r.attempts, coalesce(extract(epoch FROM clock_timestamp() - r.started_at), 0)::float8 AS age,
    coalesce(h.bytes, 0)::bigint AS last_bytes, coalesce(extract(epoch FROM h.ended_at - h.started_at), 0)::float8 AS last_seconds
FROM runs r LEFT JOIN LATERAL (
    SELECT x.bytes, x.started_at, x.ended_at FROM run_history x
    WHERE x.organization = r.organization AND x.pipeline = r.pipeline AND x.route_key = r.route_key AND x.state = 'completed' AND x.ended_at IS NOT NULL
    ORDER BY x.ended_at DESC LIMIT 1
) h ON true
WHERE r.organization = @organization AND r.id = @run;

-- name: OfferOn :exec
UPDATE attempt_offers SET compute = @compute, expires = clock_timestamp() + make_interval(secs => @expiry::double precision)
WHERE organization = @organization AND run = @run AND slot = @slot AND number = @number AND state = 'sent';

-- name: OfferStands :one
SELECT EXISTS (SELECT FROM attempt_offers o JOIN runs r ON r.organization = o.organization AND r.id = o.run
    WHERE o.organization = organization() AND o.run = @run AND o.slot = @slot AND o.number = @number AND o.state = 'sent'
        AND r.state IN ('requested', 'running')) AS stands;

-- name: InsertTask :exec
-- Its end may have been reported before.
INSERT INTO attempt_tasks (organization, run, slot, number, id) VALUES (organization(), @run, @slot, @number, @id)
ON CONFLICT (organization, run, slot, number) DO NOTHING;

-- name: EndTask :execrows
INSERT INTO attempt_tasks (organization, run, slot, number, id, version, stopped_at, reason)
VALUES (organization(), @run, @slot, @number, @id, @version, clock_timestamp(), @reason)
ON CONFLICT (organization, run, slot, number) DO UPDATE SET version = excluded.version, stopped_at = excluded.stopped_at, reason = excluded.reason
    WHERE attempt_tasks.stopped_at IS NULL AND attempt_tasks.version <= excluded.version;

-- name: TakeOffer :execrows
-- The offer of a worker that is no more and never had its lease.
DELETE FROM attempt_offers WHERE organization = organization() AND run = @run AND slot = @slot AND number = @number AND state <> 'waiting';

-- name: LiveTasks :many
-- Those that nobody has looked at for so long, or that nobody wants any more.
SELECT t.organization, t.run, t.slot, t.number, t.id, w.wanted FROM attempt_tasks t CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT FROM runs r WHERE r.organization = t.organization AND r.id = t.run AND r.state IN ('requested', 'running')
        AND (EXISTS (SELECT FROM attempt_offers o WHERE o.organization = t.organization AND o.run = t.run AND o.slot = t.slot AND o.number = t.number)
            OR EXISTS (SELECT FROM slots s WHERE s.organization = t.organization AND s.run = t.run AND s.slot = t.slot AND s.holder <> ''))) AS wanted
) w
WHERE t.stopped_at IS NULL AND (NOT w.wanted OR t.looked_at < now() - make_interval(secs => @age::float8))
ORDER BY t.looked_at LIMIT @most;

-- name: TaskLooked :exec
UPDATE attempt_tasks SET looked_at = now() WHERE organization = @organization AND run = @run AND slot = @slot AND number = @number;
