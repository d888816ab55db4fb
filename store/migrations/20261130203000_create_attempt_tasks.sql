-- +goose Up

-- Containers that were started for attempts, until they are known to have ended.
CREATE TABLE attempt_tasks (
    organization uuid NOT NULL,
    run          uuid NOT NULL,
    slot         integer NOT NULL CHECK (slot >= 0),
    -- The number of the offer that it was started for.
    number       bigint NOT NULL,
    -- The platform's id; empty: it never had one.
    id           text NOT NULL,
    -- The newest of the platform's reports; they come repeated and out of order.
    version      bigint NOT NULL DEFAULT 0,
    started_at   timestamptz NOT NULL DEFAULT now(),
    looked_at    timestamptz NOT NULL DEFAULT now(),
    stopped_at   timestamptz,
    reason       text NOT NULL DEFAULT '',
    PRIMARY KEY (organization, run, slot, number),
    FOREIGN KEY (organization, run) REFERENCES runs (organization, id) ON DELETE CASCADE
);
CREATE INDEX attempt_tasks_live ON attempt_tasks (looked_at) WHERE stopped_at IS NULL;
SELECT tenant('attempt_tasks', 'SELECT, INSERT, UPDATE');
SELECT maintained('attempt_tasks', 'SELECT, UPDATE, DELETE');

-- +goose StatementBegin
-- Whether there is work that the sweep has to look after: open inspections and
-- operations too, live containers, and what falls due before the platform's alarm.
-- Paused and partial runs are none.
CREATE OR REPLACE FUNCTION open_work() RETURNS boolean
LANGUAGE sql STABLE SET search_path = tranship AS $$
    SELECT EXISTS (SELECT FROM runs WHERE state IN ('scheduled', 'requested', 'running'))
        OR EXISTS (SELECT FROM runs WHERE state = 'paused' AND desired = 'cancel')
        OR EXISTS (SELECT FROM slots WHERE holder <> '')
        OR EXISTS (SELECT FROM fact_relays)
        OR EXISTS (SELECT FROM inspections WHERE state = 'requested')
        OR EXISTS (SELECT FROM inspections WHERE state = 'running')
        OR EXISTS (SELECT FROM operations WHERE next_at IS NOT NULL)
        OR EXISTS (SELECT FROM attempt_tasks WHERE stopped_at IS NULL)
        OR coalesce((SELECT next_due() < CASE WHEN alarm_at > clock_timestamp() THEN alarm_at ELSE 'infinity' END
            FROM arming WHERE alarm_at IS NOT NULL), false)
$$;
-- +goose StatementEnd
