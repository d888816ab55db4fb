-- +goose Up

-- Grows whenever the next firing changes, so that a platform that times it for us
-- can be compared with what it should hold.
ALTER TABLE schedules ADD COLUMN revision bigint NOT NULL DEFAULT 1;

-- When the platform wakes the sweep by itself; in the past or infinite: it does
-- not. NULL: there is no such platform, and processes time what falls due.
ALTER TABLE arming ADD COLUMN alarm_at timestamptz;

-- +goose StatementBegin
-- When the next notification, look of a rule or start of an occurrence falls due;
-- NULL: none does.
CREATE FUNCTION next_due() RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = tranship AS $$
    SELECT least(
        (SELECT min(next_at) FROM notification_deliveries WHERE next_at IS NOT NULL),
        (SELECT min(watch_at) FROM notification_rules WHERE watch_at IS NOT NULL),
        (SELECT min(due_at) FROM schedule_occurrences WHERE state = 'due'))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Whether there is work that the sweep has to look after: open inspections and
-- operations too, and what falls due before the platform's alarm. Paused and
-- partial runs are none.
CREATE OR REPLACE FUNCTION open_work() RETURNS boolean
LANGUAGE sql STABLE SET search_path = tranship AS $$
    SELECT EXISTS (SELECT FROM runs WHERE state IN ('scheduled', 'requested', 'running'))
        OR EXISTS (SELECT FROM runs WHERE state = 'paused' AND desired = 'cancel')
        OR EXISTS (SELECT FROM slots WHERE holder <> '')
        OR EXISTS (SELECT FROM fact_relays)
        OR EXISTS (SELECT FROM inspections WHERE state = 'requested')
        OR EXISTS (SELECT FROM inspections WHERE state = 'running')
        OR EXISTS (SELECT FROM operations WHERE next_at IS NOT NULL)
        OR coalesce((SELECT next_due() < CASE WHEN alarm_at > clock_timestamp() THEN alarm_at ELSE 'infinity' END
            FROM arming WHERE alarm_at IS NOT NULL), false)
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION next_due FROM PUBLIC;
GRANT EXECUTE ON FUNCTION next_due TO tranship_maintenance;
