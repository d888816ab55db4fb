-- +goose Up

-- Effects outside of the database: what is to be, and what became of it
-- (invariant 12).
CREATE TABLE operations (
    organization uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id           uuid NOT NULL,
    kind         text NOT NULL,
    -- The same key in the same kind is the same operation: its request must be, too.
    key          text NOT NULL CHECK (key <> ''),
    request      jsonb NOT NULL,
    hash         bytea NOT NULL CHECK (length(hash) = 32),
    -- What it is done to.
    target       text NOT NULL,
    -- Pending: it surely was not done. Unknown: an attempt began, and nobody knows
    -- (yet) how it ended.
    state        text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'unknown', 'succeeded', 'failed')),
    -- Counts looks, and is the fence of the one that is on.
    attempts     integer NOT NULL DEFAULT 0,
    -- When somebody has to look; NULL: concluded.
    next_at      timestamptz,
    outcome      jsonb,
    error        text NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT now(),
    concluded_at timestamptz,
    PRIMARY KEY (organization, id),
    UNIQUE (organization, kind, key),
    CHECK ((next_at IS NULL) = (concluded_at IS NOT NULL)),
    -- Unknown may be the end: after many looks it is given up as that.
    CHECK (state = 'unknown' OR (state = 'pending') = (next_at IS NOT NULL))
);
CREATE INDEX operations_due ON operations (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX operations_open ON operations (organization, kind, target) WHERE next_at IS NOT NULL;
CREATE INDEX operations_concluded ON operations (concluded_at) WHERE concluded_at IS NOT NULL;
SELECT tenant('operations');
SELECT maintained('operations', 'SELECT, DELETE');

-- +goose StatementBegin
-- Whether there is work that the sweep has to look after: open inspections and
-- operations too. Paused and partial runs are none.
CREATE OR REPLACE FUNCTION open_work() RETURNS boolean
LANGUAGE sql STABLE SET search_path = tranship AS $$
    SELECT EXISTS (SELECT FROM runs WHERE state IN ('scheduled', 'requested', 'running'))
        OR EXISTS (SELECT FROM runs WHERE state = 'paused' AND desired = 'cancel')
        OR EXISTS (SELECT FROM slots WHERE holder <> '')
        OR EXISTS (SELECT FROM fact_relays)
        OR EXISTS (SELECT FROM inspections WHERE state = 'requested')
        OR EXISTS (SELECT FROM inspections WHERE state = 'running')
        OR EXISTS (SELECT FROM operations WHERE next_at IS NOT NULL)
$$;
-- +goose StatementEnd
