-- +goose Up

-- +goose StatementBegin
-- Whether there is work that the sweep has to look after: open inspections too.
-- Paused and partial runs are none.
CREATE OR REPLACE FUNCTION open_work() RETURNS boolean
LANGUAGE sql STABLE SET search_path = tranship AS $$
    SELECT EXISTS (SELECT FROM runs WHERE state IN ('scheduled', 'requested', 'running'))
        OR EXISTS (SELECT FROM runs WHERE state = 'paused' AND desired = 'cancel')
        OR EXISTS (SELECT FROM slots WHERE holder <> '')
        OR EXISTS (SELECT FROM fact_relays)
        OR EXISTS (SELECT FROM inspections WHERE state = 'requested')
        OR EXISTS (SELECT FROM inspections WHERE state = 'running')
$$;
-- +goose StatementEnd
