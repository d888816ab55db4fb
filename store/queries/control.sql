-- The life of runs: intake, decisions, offers, the sweep.

-- name: Arm :one
SELECT arm()::boolean;

-- name: Disarm :one
SELECT disarm()::boolean;

-- name: HoldDisarmed :one
SELECT hold_disarmed()::boolean;

-- name: Alarm :one
SELECT (next_due() IS NOT NULL)::boolean AS owed, coalesce(next_due(), 'epoch')::timestamptz AS due,
    (alarm_at IS NOT NULL)::boolean AS known, coalesce(nullif(alarm_at, 'infinity'), 'epoch')::timestamptz AS alarm, clock_timestamp()::timestamptz AS now
FROM arming WHERE name = 'sweep';

-- name: SetAlarm :exec
UPDATE arming SET alarm_at = coalesce(sqlc.narg('at')::timestamptz, 'infinity') WHERE name = 'sweep';

-- name: InsertRun :exec
INSERT INTO runs (organization, id, pipeline, title, pipeline_name, pipeline_number, version, route_key, state, trigger, options, policy, slots)
VALUES (organization(), @id, @pipeline, @title, @pipeline_name, @pipeline_number, @version, @route_key, @state, @trigger, @options, @policy, @slots);

-- name: LatestRun :one
SELECT id FROM runs WHERE organization = organization() AND pipeline = @pipeline AND route_key = @route_key
ORDER BY created_at DESC, id DESC LIMIT 1;

-- name: RunInTheWay :one
SELECT id, state FROM runs WHERE organization = organization() AND pipeline = @pipeline AND route_key = @route_key
    AND state IN ('scheduled', 'requested', 'running', 'paused');

-- name: LockControlRun :one
SELECT state FROM runs WHERE organization = organization() AND id = $1 FOR NO KEY UPDATE;

-- name: ControlRun :one
SELECT r.*, clock_timestamp()::timestamptz AS now,
    (EXISTS (SELECT FROM slots s WHERE s.organization = r.organization AND s.run = r.id AND s.holder <> '' AND s.expires > clock_timestamp())
        OR EXISTS (SELECT FROM attempt_offers o WHERE o.organization = r.organization AND o.run = r.id AND o.state = 'accepted' AND o.expires > clock_timestamp()))::boolean AS busy,
    EXISTS (SELECT FROM attempt_offers o WHERE o.organization = r.organization AND o.run = r.id) AS offered,
    EXISTS (SELECT FROM runs l WHERE l.organization = r.organization AND l.pipeline = r.pipeline AND l.route_key = r.route_key
        AND l.created_at >= r.created_at AND l.id > r.id
        AND (l.ordinal IS NOT NULL OR l.state IN ('scheduled', 'requested', 'running', 'paused'))) AS overtaken
FROM runs r WHERE r.organization = organization() AND r.id = $1;

-- name: RunTotals :one
-- What the splits say; the read model once retention has deleted them.
SELECT coalesce(sum((s.totals ->> 'rows_read')::bigint), max(h.rows_read), 0)::bigint AS read,
    coalesce(sum((s.totals ->> 'rows_applied')::bigint), max(h.rows_applied), 0)::bigint AS written,
    coalesce(sum((s.totals ->> 'bytes')::bigint), max(h.bytes), 0)::bigint AS bytes
FROM (SELECT 1) AS one
LEFT JOIN run_history h ON h.organization = organization() AND h.run = @run
LEFT JOIN splits s ON s.organization = organization() AND s.run = @run AND s.kind = 'read';

-- name: ListControlRuns :many
-- Sums are those of the read model, which is a second or so behind.
SELECT r.*, clock_timestamp()::timestamptz AS now,
    coalesce(h.rows_read, 0)::bigint AS rows_read, coalesce(h.rows_applied, 0)::bigint AS rows_written, coalesce(h.bytes, 0)::bigint AS bytes
FROM runs r LEFT JOIN run_history h ON h.organization = r.organization AND h.run = r.id
WHERE r.organization = organization()
    AND r.created_at >= @created_from AND r.created_at < @created_before
    AND (r.created_at, r.id) < (@before_at::timestamptz, @before_id::uuid)
ORDER BY r.created_at DESC, r.id DESC LIMIT @most;

-- name: ListControlRunsOfStates :many
-- The newest of each state: those of a state that few runs are in are not looked for
-- among all.
SELECT r.*, clock_timestamp()::timestamptz AS now,
    coalesce(h.rows_read, 0)::bigint AS rows_read, coalesce(h.rows_applied, 0)::bigint AS rows_written, coalesce(h.bytes, 0)::bigint AS bytes
FROM unnest(@states::text[]) AS s (state)
CROSS JOIN LATERAL (
    SELECT x.id FROM runs x
    WHERE x.organization = organization() AND x.state = s.state
        AND x.created_at >= @created_from AND x.created_at < @created_before
        AND (x.created_at, x.id) < (@before_at::timestamptz, @before_id::uuid)
    ORDER BY x.created_at DESC, x.id DESC LIMIT @most
) newest
JOIN runs r ON r.organization = organization() AND r.id = newest.id
LEFT JOIN run_history h ON h.organization = r.organization AND h.run = r.id
ORDER BY r.created_at DESC, r.id DESC LIMIT @most;

-- name: ListControlRunsOfPipeline :many
SELECT r.*, clock_timestamp()::timestamptz AS now,
    coalesce(h.rows_read, 0)::bigint AS rows_read, coalesce(h.rows_applied, 0)::bigint AS rows_written, coalesce(h.bytes, 0)::bigint AS bytes
FROM runs r LEFT JOIN run_history h ON h.organization = r.organization AND h.run = r.id
WHERE r.organization = organization() AND r.pipeline = @pipeline
    AND (cardinality(@states::text[]) = 0 OR r.state = ANY (@states::text[]))
    AND r.created_at >= @created_from AND r.created_at < @created_before
    AND (r.created_at, r.id) < (@before_at::timestamptz, @before_id::uuid)
ORDER BY r.created_at DESC, r.id DESC LIMIT @most;

-- name: ListControlRunsOfTitle :many
SELECT r.*, clock_timestamp()::timestamptz AS now,
    coalesce(h.rows_read, 0)::bigint AS rows_read, coalesce(h.rows_applied, 0)::bigint AS rows_written, coalesce(h.bytes, 0)::bigint AS bytes
FROM runs r LEFT JOIN run_history h ON h.organization = r.organization AND h.run = r.id
WHERE r.organization = organization() AND r.title = @title
    AND (cardinality(@states::text[]) = 0 OR r.state = ANY (@states::text[]))
    AND r.created_at >= @created_from AND r.created_at < @created_before
    AND (r.created_at, r.id) < (@before_at::timestamptz, @before_id::uuid)
ORDER BY r.created_at DESC, r.id DESC LIMIT @most;

-- name: ApplyChange :execrows
-- A transition is a compare-and-swap on the state it was decided for.
UPDATE runs SET state = @state, desired = @desired, resumable = @resumable, error = @error, error_class = @error_class, hint = @hint,
    failures = @failures, interruptions = @interruptions, asked_at = CASE WHEN desired = @desired THEN asked_at ELSE clock_timestamp() END,
    ended_at = CASE WHEN @state IN ('completed', 'failed', 'canceled') THEN coalesce(ended_at, clock_timestamp()) END
WHERE organization = organization() AND id = @id AND state = @was;

-- name: OfferAttempt :exec
INSERT INTO attempt_offers (organization, run, slot, not_before)
VALUES (organization(), @run, 0, coalesce(sqlc.narg('not_before')::timestamptz, clock_timestamp()))
ON CONFLICT (organization, run, slot) DO UPDATE SET state = 'waiting', not_before = excluded.not_before, expires = NULL, holder = '';

-- name: WithdrawOffers :exec
DELETE FROM attempt_offers WHERE organization = organization() AND run = $1;

-- name: OneAdmitter :exec
SELECT pg_advisory_xact_lock(hashtextextended('tranship.admission', 0));

-- name: AdmitOffers :many
WITH waiting AS MATERIALIZED (
    SELECT organization, run, slot, not_before FROM attempt_offers
    WHERE state = 'waiting' AND not_before <= clock_timestamp()
    ORDER BY not_before LIMIT 5000 FOR UPDATE SKIP LOCKED
), due AS (
    SELECT w.organization, w.run, w.slot, w.not_before, r.slots, r.desired = 'cancel' AS cancel FROM waiting w
    JOIN runs r ON r.organization = w.organization AND r.id = w.run
    WHERE r.state IN ('requested', 'running')
), busy AS (
    SELECT r.organization, sum(r.slots) AS slots FROM runs r
    WHERE r.organization IN (SELECT d.organization FROM due d) AND r.state IN ('requested', 'running')
        AND (EXISTS (SELECT FROM slots s WHERE s.organization = r.organization AND s.run = r.id AND s.holder <> '' AND s.expires > clock_timestamp())
            OR EXISTS (SELECT FROM attempt_offers o WHERE o.organization = r.organization AND o.run = r.id AND o.state <> 'waiting' AND o.expires > clock_timestamp()))
    GROUP BY r.organization
), lined AS (
    SELECT d.*, coalesce(b.slots, 0) AS others,
        coalesce(b.slots, 0) + sum(d.slots) FILTER (WHERE NOT d.cancel) OVER (PARTITION BY d.organization ORDER BY d.not_before, d.run) AS total
    FROM due d LEFT JOIN busy b ON b.organization = d.organization
), fit AS (
    SELECT l.*, row_number() OVER (PARTITION BY l.cancel ORDER BY l.total, l.not_before, l.run) AS place FROM lined l
    -- A run that wants more than the bound runs alone.
    WHERE l.cancel OR l.total <= @per_organization::bigint OR l.others = 0 AND l.total = l.slots
), chosen AS (
    SELECT f.organization, f.run, f.slot, f.cancel FROM fit f WHERE f.cancel OR f.place <= @most::bigint
)
UPDATE attempt_offers o SET state = 'sent', sends = o.sends + 1, number = nextval('offer_numbers'), expires = clock_timestamp() + make_interval(secs => @expiry::double precision)
FROM chosen c WHERE o.organization = c.organization AND o.run = c.run AND o.slot = c.slot
RETURNING o.organization, o.run, o.slot, o.number, c.cancel::boolean AS cancel;

-- name: AcceptOffer :execrows
UPDATE attempt_offers o SET state = 'accepted', holder = @holder, expires = clock_timestamp() + make_interval(secs => @ttl::double precision)
WHERE o.organization = organization() AND o.run = @run AND o.slot = @slot AND o.number = @number AND o.state = 'sent'
    AND EXISTS (SELECT FROM runs r WHERE r.organization = o.organization AND r.id = o.run AND r.state IN ('requested', 'running'));

-- name: KeepOffer :one
UPDATE attempt_offers o SET expires = clock_timestamp() + make_interval(secs => @ttl::double precision)
FROM runs r
WHERE o.organization = organization() AND o.run = @run AND o.slot = @slot AND o.number = @number AND o.state = 'accepted' AND o.holder = @holder
    AND r.organization = o.organization AND r.id = o.run
RETURNING r.desired;

-- name: GiveUpOffer :execrows
DELETE FROM attempt_offers
WHERE organization = organization() AND run = @run AND slot = @slot AND number = @number AND state = 'accepted' AND holder = @holder;

-- name: ReturnOffers :execrows
UPDATE attempt_offers o SET state = 'waiting', expires = NULL, holder = ''
FROM (SELECT organization, run, slot FROM attempt_offers WHERE state <> 'waiting' AND expires <= clock_timestamp() FOR UPDATE SKIP LOCKED) x
WHERE o.organization = x.organization AND o.run = x.run AND o.slot = x.slot;

-- name: FindObligations :many
(SELECT DISTINCT 'lost' AS kind, s.organization, s.run FROM slots s
    JOIN runs r ON r.organization = s.organization AND r.id = s.run
    WHERE s.holder <> '' AND slot_lost(s.expires, s.renewed, r.desired, r.asked_at) LIMIT @most::bigint)
UNION ALL
(SELECT 'idle', r.organization, r.id FROM runs r WHERE (r.state IN ('requested', 'running') OR r.state = 'paused' AND r.desired = 'cancel')
    AND NOT EXISTS (SELECT FROM slots s WHERE s.organization = r.organization AND s.run = r.id AND s.holder <> '')
    AND NOT EXISTS (SELECT FROM attempt_offers o WHERE o.organization = r.organization AND o.run = r.id)
LIMIT @most)
UNION ALL
(SELECT 'due', o.organization, o.run FROM attempt_offers o JOIN runs r ON r.organization = o.organization AND r.id = o.run
    WHERE o.state = 'waiting' AND o.not_before <= clock_timestamp() AND r.state = 'scheduled' LIMIT @most);

-- name: NextObligation :one
-- The epoch: nothing is dated.
SELECT clock_timestamp()::timestamptz AS now, coalesce(least(
    (SELECT min(expires) FROM slots WHERE holder <> ''),
    (SELECT min(asked_at) + interval '5 s' FROM runs WHERE state = 'running' AND desired = 'cancel'),
    (SELECT min(expires) FROM attempt_offers WHERE state <> 'waiting'),
    (SELECT min(not_before) FROM attempt_offers WHERE state = 'waiting' AND not_before > clock_timestamp())), 'epoch')::timestamptz AS next;

-- name: TakeOverSlots :many
WITH lost AS (
    SELECT s.slot, s.generation, s.holder FROM slots s JOIN runs r ON r.organization = s.organization AND r.id = s.run
    WHERE s.organization = organization() AND s.run = $1 AND s.holder <> '' AND slot_lost(s.expires, s.renewed, r.desired, r.asked_at) FOR UPDATE OF s
), freed AS (
    UPDATE slots s SET generation = s.generation + 1, holder = '', expires = clock_timestamp()
    FROM lost l WHERE s.organization = organization() AND s.run = $1 AND s.slot = l.slot
), returned AS (
    UPDATE splits p SET owner = NULL, owner_generation = NULL
    FROM lost l WHERE p.organization = organization() AND p.run = $1 AND p.owner = l.slot AND NOT p.done
)
SELECT slot, generation, holder FROM lost ORDER BY slot;

-- name: RunResources :many
SELECT p.seq, p.name, p.plan FROM resources p
WHERE p.organization = organization() AND p.run = @run AND p.seq > @after ORDER BY p.seq LIMIT @most;

-- name: SplitsOfResources :many
SELECT resource, kind, done, epoch, claim, totals FROM splits
WHERE organization = organization() AND run = @run AND resource = ANY (@names::text[]);
