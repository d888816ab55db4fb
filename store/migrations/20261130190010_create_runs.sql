-- +goose Up

-- What a pipeline carries from run to run, per source and sink: the engine's
-- route. It is known once both ends were opened.
CREATE TABLE routes (
    organization uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id           uuid NOT NULL,
    installation text NOT NULL,
    pipeline     text NOT NULL,
    source       text NOT NULL,
    sink         text NOT NULL,
    -- The greatest ordinal that a run of the route ever had (P1).
    last_ordinal bigint NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization, id),
    UNIQUE (organization, pipeline, source, sink)
);
SELECT tenant('routes');

CREATE TABLE cursors (
    organization uuid NOT NULL,
    route        uuid NOT NULL,
    resource     text NOT NULL,
    -- Opaque; json keeps it byte by byte.
    cursor       json,
    -- The remembered window: row ids of 16 bytes, one after the other.
    seen         bytea,
    -- Not 0: the resource was reset. Runs up to this ordinal began before that
    -- and store no cursor any more; a later run's publish ends the reset.
    reset_ordinal bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (organization, route, resource),
    FOREIGN KEY (organization, route) REFERENCES routes (organization, id) ON DELETE CASCADE
);
SELECT tenant('cursors');

-- One execution of one route of a pipeline. Its row is locked before any of the
-- tables below it is written, but for a lease's renewal.
CREATE TABLE runs (
    organization  uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id            uuid NOT NULL,
    -- NULL: not one of a stored pipeline's.
    pipeline      uuid,
    pipeline_name text NOT NULL,
    version       text NOT NULL,
    -- The graph's route, as "source->sink".
    route_key     text NOT NULL DEFAULT '',
    -- The engine's route and the run's number in it (P1): NULL before the ends
    -- were opened.
    route         uuid,
    ordinal       bigint,
    state         text NOT NULL CHECK (state IN
        ('scheduled', 'requested', 'running', 'paused', 'completed', 'failed', 'canceled')),
    resumable     boolean NOT NULL DEFAULT false CHECK (NOT resumable OR state = 'failed'),
    desired       text NOT NULL DEFAULT 'run' CHECK (desired IN ('run', 'pause', 'cancel')),
    error         text NOT NULL DEFAULT '',
    error_class   text NOT NULL DEFAULT '' CHECK (error_class IN ('', 'retryable', 'permanent', 'bug')),
    created_at    timestamptz NOT NULL DEFAULT now(),
    started_at    timestamptz,
    ended_at      timestamptz,
    -- When a checkpoint last moved.
    progressed_at timestamptz,
    attempts      integer NOT NULL DEFAULT 0,
    -- Lost attempts since a checkpoint last moved (P24).
    interruptions integer NOT NULL DEFAULT 0,
    planned       boolean NOT NULL DEFAULT false,
    receipt       json,
    -- The number of the run's last fact: they have no gaps.
    last_fact     bigint NOT NULL DEFAULT 0,
    -- Who or what asked for it, and the options of the request.
    trigger       jsonb NOT NULL DEFAULT '{}',
    options       jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (organization, id),
    FOREIGN KEY (organization, route) REFERENCES routes (organization, id),
    CHECK ((route IS NULL) = (ordinal IS NULL))
) WITH (fillfactor = 80);
-- The overlap guard (P21).
CREATE UNIQUE INDEX runs_overlap ON runs (organization, pipeline, route_key)
    WHERE state IN ('scheduled', 'requested', 'running', 'paused');
CREATE UNIQUE INDEX runs_route_open ON runs (organization, route)
    WHERE state IN ('scheduled', 'requested', 'running', 'paused');
CREATE UNIQUE INDEX runs_ordinal ON runs (organization, route, ordinal);
CREATE INDEX runs_recent ON runs (organization, created_at, id);
CREATE INDEX runs_of_pipeline ON runs (organization, pipeline, created_at, id);
CREATE INDEX runs_of_pipeline_name ON runs (organization, pipeline_name, created_at, id);
CREATE INDEX runs_in_state ON runs (state, created_at) WHERE state IN ('scheduled', 'requested', 'running', 'paused');
CREATE INDEX runs_ended ON runs (ended_at) WHERE state IN ('completed', 'failed', 'canceled');
SELECT tenant('runs');
SELECT maintained('runs');

-- The frozen plan, a resource a row.
CREATE TABLE resources (
    organization uuid NOT NULL,
    run          uuid NOT NULL,
    seq          integer NOT NULL,
    name         text NOT NULL,
    generation   integer NOT NULL,
    plan         json NOT NULL,
    PRIMARY KEY (organization, run, seq),
    UNIQUE (organization, run, name),
    FOREIGN KEY (organization, run) REFERENCES runs (organization, id) ON DELETE CASCADE
);
SELECT tenant('resources');
SELECT maintained('resources', 'SELECT, DELETE');

CREATE TABLE splits (
    organization uuid NOT NULL,
    run          uuid NOT NULL,
    id           text NOT NULL,
    resource     text NOT NULL,
    resource_seq integer NOT NULL,
    seq          integer NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('read', 'publish')),
    generation   integer NOT NULL,
    -- The split's fence: every claim bumps it (P1).
    claim        bigint NOT NULL DEFAULT 0,
    epoch        bigint NOT NULL DEFAULT 0,
    position     json,
    done         boolean NOT NULL DEFAULT false,
    totals       json,
    -- The slot and lease generation that claimed it; NULL: nobody's.
    owner            integer,
    owner_generation bigint,
    PRIMARY KEY (organization, run, id),
    FOREIGN KEY (organization, run) REFERENCES runs (organization, id) ON DELETE CASCADE,
    CHECK ((owner IS NULL) = (owner_generation IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX splits_open ON splits (organization, run, kind, resource_seq, seq) WHERE NOT done;
SELECT tenant('splits');
SELECT maintained('splits', 'SELECT, DELETE');

-- Leases: one row per place of a run's workers.
CREATE TABLE slots (
    organization uuid NOT NULL,
    run          uuid NOT NULL,
    slot         integer NOT NULL CHECK (slot >= 0),
    -- Only grows.
    generation   bigint NOT NULL,
    -- Empty: free.
    holder       text NOT NULL,
    -- By this database's clock alone (P22).
    expires      timestamptz NOT NULL,
    PRIMARY KEY (organization, run, slot),
    FOREIGN KEY (organization, run) REFERENCES runs (organization, id) ON DELETE CASCADE
) WITH (fillfactor = 50);
-- Without expires, so that a renewal changes no index.
CREATE INDEX slots_held ON slots (organization, run) WHERE holder <> '';
SELECT tenant('slots');
SELECT maintained('slots', 'SELECT');

CREATE TABLE artifacts (
    organization uuid NOT NULL,
    run          uuid NOT NULL,
    resource     text NOT NULL,
    name         text NOT NULL,
    body         json NOT NULL,
    PRIMARY KEY (organization, run, resource, name),
    FOREIGN KEY (organization, run) REFERENCES runs (organization, id) ON DELETE CASCADE
);
SELECT tenant('artifacts');
SELECT maintained('artifacts', 'SELECT, DELETE');

-- Row ids of the next run's window: 16 bytes each, one row a commit.
CREATE TABLE seen_rows (
    organization uuid NOT NULL,
    run          uuid NOT NULL,
    resource     text NOT NULL,
    id           bigint GENERATED ALWAYS AS IDENTITY,
    ids          bytea NOT NULL,
    PRIMARY KEY (organization, run, resource, id),
    FOREIGN KEY (organization, run) REFERENCES runs (organization, id) ON DELETE CASCADE
);
SELECT tenant('seen_rows');
SELECT maintained('seen_rows', 'SELECT, DELETE');

-- What happened, numbered per run without gaps. Partitioned by the run's id,
-- whose first 48 bits are its time (P27).
CREATE TABLE facts (
    organization uuid NOT NULL,
    run          uuid NOT NULL,
    number       bigint NOT NULL CHECK (number > 0),
    id           uuid NOT NULL,
    type         text NOT NULL,
    version      integer NOT NULL,
    at           timestamptz NOT NULL,
    -- What at leaves out of the time: 0 to 999.
    nanos        smallint NOT NULL DEFAULT 0 CHECK (nanos BETWEEN 0 AND 999),
    payload      json NOT NULL,
    PRIMARY KEY (organization, run, number),
    UNIQUE (organization, run, id),
    FOREIGN KEY (organization, run) REFERENCES runs (organization, id) ON DELETE CASCADE
) PARTITION BY RANGE (run);
SELECT tenant('facts', 'SELECT, INSERT');
SELECT maintained('facts', 'SELECT, DELETE');
-- Runs whose ids have another time, such as adopted ones.
CREATE TABLE facts_other PARTITION OF facts DEFAULT;
ALTER TABLE facts_other ENABLE ROW LEVEL SECURITY;
ALTER TABLE facts_other FORCE ROW LEVEL SECURITY;

-- +goose StatementBegin
-- The least UUIDv7 of a time.
CREATE FUNCTION uuid_at(t timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid;
-- +goose StatementEnd

-- +goose StatementBegin
-- Makes the partitions of facts from the current month to so many months ahead.
-- A month whose facts are in facts_other already stays there. Only an owner may
-- make partitions; tables are locked in the order of a commit.
CREATE FUNCTION make_fact_partitions(ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tranship SET lock_timeout = '1s' AS $$
DECLARE
    month timestamptz;
    name  text;
    made  integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('tranship.facts', 0));
    FOR i IN 0..ahead LOOP
        month := (date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => i)) AT TIME ZONE 'UTC';
        name := 'facts_' || to_char(month AT TIME ZONE 'UTC', 'YYYYMM');
        CONTINUE WHEN to_regclass(name) IS NOT NULL;
        BEGIN
            LOCK TABLE runs IN SHARE ROW EXCLUSIVE MODE;
            EXECUTE format('CREATE TABLE %I (LIKE facts INCLUDING ALL)', name);
            EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
            EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
            EXECUTE format('ALTER TABLE facts ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                name, uuid_at(month), uuid_at(month + interval '1 month'));
            made := made + 1;
        EXCEPTION WHEN check_violation THEN
            NULL;
        END;
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Drops a month of facts, as YYYYMM. The caller has seen to its age.
CREATE FUNCTION drop_fact_partition(month text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tranship SET lock_timeout = '1s' AS $$
BEGIN
    IF month !~ '^[0-9]{6}$' THEN
        RAISE EXCEPTION 'a month is YYYYMM, not %', month;
    END IF;
    LOCK TABLE runs, facts IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('DROP TABLE %I', 'facts_' || month);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The months of facts, as YYYYMM, whose runs all have ended and are older than that.
CREATE FUNCTION old_fact_partitions(older interval) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = tranship AS $$
    SELECT m.month FROM (
        SELECT right(c.relname, 6) AS month, to_date(right(c.relname, 6), 'YYYYMM')::timestamp AT TIME ZONE 'UTC' AS begins
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'facts'::regclass AND c.relname ~ '^facts_[0-9]{6}$'
    ) m
    WHERE m.begins + interval '1 month' <= now() - older AND NOT EXISTS (
        SELECT FROM runs r WHERE r.state IN ('scheduled', 'requested', 'running', 'paused')
            AND r.id >= uuid_at(m.begins) AND r.id < uuid_at(m.begins + interval '1 month'))
    ORDER BY 1
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION make_fact_partitions, drop_fact_partition, old_fact_partitions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION make_fact_partitions, drop_fact_partition, old_fact_partitions TO tranship_maintenance;
SELECT make_fact_partitions(2);

-- The outbox: facts that are committed and not yet passed on. Written with them,
-- deleted once they were taken.
CREATE TABLE fact_relays (
    organization uuid NOT NULL,
    run          uuid NOT NULL,
    -- The facts from first to last.
    first        bigint NOT NULL,
    last         bigint NOT NULL CHECK (last >= first),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (organization, run, last),
    FOREIGN KEY (organization, run) REFERENCES runs (organization, id) ON DELETE CASCADE
);
CREATE INDEX fact_relays_created_at ON fact_relays (created_at);
SELECT tenant('fact_relays', 'SELECT, INSERT');
SELECT maintained('fact_relays', 'SELECT, UPDATE, DELETE');

-- The wish for an attempt in a slot, until a worker has the slot's lease (P23).
CREATE TABLE attempt_offers (
    organization uuid NOT NULL,
    run          uuid NOT NULL,
    slot         integer NOT NULL CHECK (slot >= 0),
    compute      text NOT NULL DEFAULT 'local',
    -- waiting: nobody was told. sent: a command is out, which counts as lost
    -- once expires has passed.
    state        text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent')),
    not_before   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires      timestamptz,
    sends        integer NOT NULL DEFAULT 0,
    PRIMARY KEY (organization, run, slot),
    FOREIGN KEY (organization, run) REFERENCES runs (organization, id) ON DELETE CASCADE,
    CHECK ((state = 'sent') = (expires IS NOT NULL))
);
CREATE INDEX attempt_offers_waiting ON attempt_offers (compute, not_before) WHERE state = 'waiting';
CREATE INDEX attempt_offers_sent ON attempt_offers (expires) WHERE state = 'sent';
SELECT tenant('attempt_offers');
SELECT maintained('attempt_offers');

-- Whether the sweep has to run (P23). Not an organization's: one row.
CREATE TABLE arming (
    name       text PRIMARY KEY CHECK (name = 'sweep'),
    armed      boolean NOT NULL,
    -- Grows with every arming, whether or not it was armed before.
    admissions bigint NOT NULL DEFAULT 0,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO arming (name, armed) VALUES ('sweep', false);
GRANT SELECT, UPDATE ON arming TO tranship_app, tranship_maintenance;

-- +goose StatementBegin
-- Numbers and stores facts of a run that the transaction has locked. One that is
-- there already, from a repeated call, is not stored again (invariant 4).
-- progressed: a checkpoint moved too.
CREATE FUNCTION add_facts(the_run uuid, progressed boolean,
    ids uuid[], types text[], versions integer[], ats timestamptz[], nanos integer[], payloads text[])
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
    stored bigint;
BEGIN
    IF cardinality(ids) = 0 AND NOT progressed THEN
        RETURN 0;
    END IF;
    SELECT r.last_fact INTO STRICT before FROM runs r WHERE r.organization = organization() AND r.id = the_run;
    INSERT INTO facts (organization, run, number, id, type, version, at, nanos, payload)
    SELECT organization(), the_run, before + row_number() OVER (ORDER BY f.n), f.id, f.type, f.version, f.at, f.nanos, f.payload::json
    FROM unnest(ids, types, versions, ats, nanos, payloads) WITH ORDINALITY AS f (id, type, version, at, nanos, payload, n)
    WHERE NOT EXISTS (SELECT FROM facts o WHERE o.organization = organization() AND o.run = the_run AND o.id = f.id);
    GET DIAGNOSTICS stored = ROW_COUNT;
    IF stored > 0 OR progressed THEN
        UPDATE runs r SET last_fact = before + stored,
            progressed_at = CASE WHEN progressed THEN clock_timestamp() ELSE r.progressed_at END,
            interruptions = CASE WHEN progressed THEN 0 ELSE r.interruptions END
        WHERE r.organization = organization() AND r.id = the_run;
    END IF;
    IF stored > 0 THEN
        INSERT INTO fact_relays (organization, run, first, last) VALUES (organization(), the_run, before + 1, before + stored);
    END IF;
    RETURN stored;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- A step of a split with its facts, if the slot's generation and the split's
-- claim are still the caller's (invariant 2); otherwise nothing is written.
-- Returns what is not so ('', generation, claim, kind, unread), the number found
-- in its place, and the resource.
CREATE FUNCTION commit_progress(the_run uuid, the_slot integer, the_generation bigint,
    the_split text, the_claim bigint, the_kind text, the_epoch bigint, the_position json, is_done boolean, the_totals json,
    artifact_names text[], artifact_bodies text[], seen_ids bytea,
    fact_ids uuid[], fact_types text[], fact_versions integer[], fact_ats timestamptz[], fact_nanos integer[], fact_payloads text[],
    next_cursor json, next_seen bytea)
RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    org   uuid := organization();
    r     record;
    s     record;
    have  bigint;
    reset bigint;
BEGIN
    SELECT route, ordinal INTO r FROM runs WHERE organization = org AND id = the_run FOR NO KEY UPDATE;
    -- A second statement sees what was committed while the first one waited.
    SELECT generation INTO have FROM slots WHERE organization = org AND run = the_run AND slot = the_slot;
    IF have IS DISTINCT FROM the_generation THEN
        RETURN ARRAY['generation', coalesce(have, 0)::text, ''];
    END IF;
    SELECT p.claim, p.kind, p.resource, coalesce(p.owner = the_slot AND p.owner_generation = the_generation, false) AS mine INTO s
    FROM splits p WHERE p.organization = org AND p.run = the_run AND p.id = the_split;
    IF NOT FOUND OR s.claim <> the_claim OR NOT s.mine THEN
        RETURN ARRAY['claim', coalesce(s.claim, 0)::text, ''];
    END IF;
    IF s.kind <> the_kind THEN
        RETURN ARRAY['kind', '0', s.resource];
    END IF;
    IF the_kind = 'publish' THEN
        -- Invariant 1: the cursor would pass rows that are not applied.
        SELECT count(*) INTO have FROM splits p
        WHERE p.organization = org AND p.run = the_run AND p.resource = s.resource AND p.kind = 'read' AND NOT p.done;
        IF have > 0 THEN
            RETURN ARRAY['unread', have::text, s.resource];
        END IF;
    END IF;
    UPDATE splits p SET epoch = the_epoch, position = the_position, done = is_done, totals = the_totals
    WHERE p.organization = org AND p.run = the_run AND p.id = the_split;
    IF cardinality(artifact_names) > 0 THEN
        INSERT INTO artifacts (organization, run, resource, name, body)
        SELECT org, the_run, s.resource, a.name, a.body::json FROM unnest(artifact_names, artifact_bodies) AS a (name, body)
        ON CONFLICT (organization, run, resource, name) DO UPDATE SET body = excluded.body;
    END IF;
    IF seen_ids IS NOT NULL THEN
        INSERT INTO seen_rows (organization, run, resource, ids) VALUES (org, the_run, s.resource, seen_ids);
    END IF;
    PERFORM add_facts(the_run, true, fact_ids, fact_types, fact_versions, fact_ats, fact_nanos, fact_payloads);
    IF the_kind = 'publish' THEN
        SELECT c.reset_ordinal INTO reset FROM cursors c WHERE c.organization = org AND c.route = r.route AND c.resource = s.resource;
        -- A reset after the run began outlives it.
        IF reset IS NULL OR r.ordinal > reset THEN
            INSERT INTO cursors (organization, route, resource, cursor, seen) VALUES (org, r.route, s.resource, next_cursor, next_seen)
            ON CONFLICT (organization, route, resource)
            DO UPDATE SET cursor = excluded.cursor, seen = excluded.seen, reset_ordinal = 0;
        END IF;
    END IF;
    RETURN ARRAY['', '0', s.resource];
END
$$;
-- +goose StatementEnd
