-- +goose Up

-- arm tells whether nothing was armed before: what wakes the sweep from outside of
-- the database is then turned on before the commit (P23). Programs that ask for no
-- answer call it as before.
DROP FUNCTION arm();

-- +goose StatementBegin
-- Arms the sweep in the transaction that makes work (P23). Whoever arms shares a
-- lock until it commits, and the sweep disarms under the same lock alone, so that
-- no work is committed unarmed. The call comes last in its transaction: nothing
-- is locked after it. Processes that sleep are woken with the commit, and only
-- if nothing was armed before; true then.
CREATE FUNCTION arm() RETURNS boolean
LANGUAGE plpgsql SET search_path = tranship AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('tranship.arming', 0));
    UPDATE arming SET armed = true, admissions = admissions + 1, changed_at = clock_timestamp() WHERE name = 'sweep' AND NOT armed;
    IF FOUND THEN
        PERFORM pg_notify('tranship', '{"kind":"armed"}');
        RETURN true;
    END IF;
    RETURN false;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Keeps everybody from arming until the transaction ends; true if the sweep is
-- disarmed.
CREATE FUNCTION hold_disarmed() RETURNS boolean
LANGUAGE plpgsql SET search_path = tranship AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('tranship.arming', 0));
    RETURN (SELECT NOT armed FROM arming WHERE name = 'sweep');
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION arm, hold_disarmed FROM PUBLIC;
GRANT EXECUTE ON FUNCTION arm TO tranship_app, tranship_maintenance;
GRANT EXECUTE ON FUNCTION hold_disarmed TO tranship_maintenance;
