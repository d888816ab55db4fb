-- +goose Up

-- What the control plane decides about a run by, beside what its workers need.
ALTER TABLE runs
    -- The pipeline's name; pipeline_name is the route's.
    ADD COLUMN title           text NOT NULL DEFAULT '',
    -- The number of the pipeline's version; 0 for runs of a file.
    ADD COLUMN pipeline_number bigint NOT NULL DEFAULT 0,
    ADD COLUMN hint            text NOT NULL DEFAULT '',
    -- Attempts that ended with an error; a lost one is an interruption.
    ADD COLUMN failures        integer NOT NULL DEFAULT 0,
    -- The retry policy and limits that the run was accepted under.
    ADD COLUMN policy          jsonb NOT NULL DEFAULT '{}',
    -- When desired became what it is.
    ADD COLUMN asked_at        timestamptz,
    -- How many of its organization's slots an attempt takes.
    ADD COLUMN slots           integer NOT NULL DEFAULT 2 CHECK (slots > 0);

CREATE INDEX runs_of_title ON runs (organization, title, created_at, id);

-- When the lease was last renewed: a canceled run does not wait for the end of a
-- lease that nobody renews any more (P22).
ALTER TABLE slots ADD COLUMN renewed timestamptz NOT NULL DEFAULT clock_timestamp();

-- +goose StatementBegin
-- Whether a held slot's worker counts as lost: its lease is over, or its run is
-- being canceled and it has not been heard of for longer than a heartbeat.
CREATE FUNCTION slot_lost(expires timestamptz, renewed timestamptz, desired text, asked_at timestamptz) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = tranship
RETURN expires <= clock_timestamp() OR desired = 'cancel' AND greatest(asked_at, renewed) <= clock_timestamp() - interval '5 s';
-- +goose StatementEnd

-- Each sending has a number of its own, so that a late command cannot be taken
-- for a later one.
CREATE SEQUENCE offer_numbers;
GRANT USAGE ON SEQUENCE offer_numbers TO tranship_app, tranship_maintenance;

ALTER TABLE attempt_offers
    ADD COLUMN number bigint NOT NULL DEFAULT 0,
    -- Who accepted it and does not have the slot's lease yet.
    ADD COLUMN holder text NOT NULL DEFAULT '',
    DROP CONSTRAINT attempt_offers_state_check,
    DROP CONSTRAINT attempt_offers_check,
    ADD CONSTRAINT attempt_offers_state_check CHECK (state IN ('waiting', 'sent', 'accepted')),
    ADD CONSTRAINT attempt_offers_expires_check CHECK ((state = 'waiting') = (expires IS NULL)),
    ADD CONSTRAINT attempt_offers_holder_check CHECK ((state = 'accepted') = (holder <> ''));
DROP INDEX attempt_offers_sent;
CREATE INDEX attempt_offers_expires ON attempt_offers (expires) WHERE state <> 'waiting';

-- +goose StatementBegin
-- Arms the sweep in the transaction that makes work (P23). Whoever arms shares a
-- lock until it commits, and the sweep disarms under the same lock alone, so that
-- no work is committed unarmed. The call comes last in its transaction: nothing
-- is locked after it. Processes that sleep are woken with the commit, and only
-- if nothing was armed before.
CREATE FUNCTION arm() RETURNS void
LANGUAGE plpgsql SET search_path = tranship AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('tranship.arming', 0));
    UPDATE arming SET armed = true, admissions = admissions + 1, changed_at = clock_timestamp() WHERE name = 'sweep' AND NOT armed;
    IF FOUND THEN
        PERFORM pg_notify('tranship', '{"kind":"armed"}');
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Whether there is work that the sweep has to look after. Paused and partial runs
-- are none.
CREATE FUNCTION open_work() RETURNS boolean
LANGUAGE sql STABLE SET search_path = tranship AS $$
    SELECT EXISTS (SELECT FROM runs WHERE state IN ('scheduled', 'requested', 'running'))
        OR EXISTS (SELECT FROM runs WHERE state = 'paused' AND desired = 'cancel')
        OR EXISTS (SELECT FROM slots WHERE holder <> '')
        OR EXISTS (SELECT FROM fact_relays)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Disarms the sweep unless there is work; true if it is disarmed now. Many may
-- ask; the lock is taken only if there seems to be none.
CREATE FUNCTION disarm() RETURNS boolean
LANGUAGE plpgsql SET search_path = tranship AS $$
BEGIN
    IF open_work() THEN
        RETURN false;
    END IF;
    IF NOT (SELECT armed FROM arming WHERE name = 'sweep') THEN
        RETURN true;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('tranship.arming', 0));
    -- This statement sees what was committed while the lock was waited for.
    IF open_work() THEN
        RETURN false;
    END IF;
    UPDATE arming SET armed = false, changed_at = clock_timestamp() WHERE name = 'sweep';
    RETURN true;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION arm, open_work, disarm FROM PUBLIC;
GRANT EXECUTE ON FUNCTION arm TO tranship_app, tranship_maintenance;
GRANT EXECUTE ON FUNCTION open_work, disarm TO tranship_maintenance;
