-- +goose Up

-- Read models: what the facts of runs amount to. They hold nothing that the facts
-- don't, and outlive them.
CREATE TABLE run_history (
    organization    uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    run             uuid NOT NULL,
    -- NULL: not one of a stored pipeline's.
    pipeline        uuid,
    pipeline_name   text NOT NULL,
    route_key       text NOT NULL,
    version         text NOT NULL,
    -- The connectors of the ends; empty: not known.
    source          text NOT NULL DEFAULT '',
    sink            text NOT NULL DEFAULT '',
    schedule        uuid,
    created_at      timestamptz NOT NULL,
    -- Facts up to this number are in the row; the events of those up to muted were
    -- raised before a rebuild.
    folded          bigint NOT NULL DEFAULT 0,
    muted           bigint NOT NULL DEFAULT 0,
    -- Empty: before the first fact.
    state           text NOT NULL DEFAULT '' CHECK (state IN
        ('', 'scheduled', 'requested', 'running', 'paused', 'completed', 'failed', 'canceled')),
    resumable       boolean NOT NULL DEFAULT false,
    error           text NOT NULL DEFAULT '',
    error_class     text NOT NULL DEFAULT '' CHECK (error_class IN ('', 'retryable', 'permanent', 'bug')),
    hint            text NOT NULL DEFAULT '',
    started_at      timestamptz,
    ended_at        timestamptz,
    progressed_at   timestamptz,
    attempts        integer NOT NULL DEFAULT 0,
    failures        integer NOT NULL DEFAULT 0,
    interruptions   integer NOT NULL DEFAULT 0,
    rows_read       bigint NOT NULL DEFAULT 0,
    rows_applied    bigint NOT NULL DEFAULT 0,
    rows_superseded bigint NOT NULL DEFAULT 0,
    rows_skipped    bigint NOT NULL DEFAULT 0,
    rows_set_aside  bigint NOT NULL DEFAULT 0,
    bytes           bigint NOT NULL DEFAULT 0,
    cpu_ms          bigint NOT NULL DEFAULT 0,
    peak_bytes      bigint NOT NULL DEFAULT 0,
    -- What folding goes on from.
    memo            json NOT NULL DEFAULT '{}',
    PRIMARY KEY (organization, run)
) WITH (fillfactor = 80);
CREATE INDEX run_history_recent ON run_history (organization, created_at, run);
CREATE INDEX run_history_of_pipeline ON run_history (organization, pipeline, created_at, run);
-- The health of a pipeline's routes: the newest endings of each kind.
CREATE INDEX run_history_endings ON run_history (organization, pipeline, route_key, state, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX run_history_running ON run_history (organization, pipeline, run) WHERE state = 'running';
SELECT tenant('run_history');
SELECT maintained('run_history', 'SELECT, DELETE');

CREATE TABLE run_resources (
    organization    uuid NOT NULL,
    run             uuid NOT NULL,
    resource        text NOT NULL,
    state           text NOT NULL CHECK (state IN ('planned', 'running', 'completed', 'failed')),
    target          text NOT NULL,
    read_mode       text NOT NULL,
    write_mode      text NOT NULL,
    splits          integer NOT NULL,
    splits_done     integer NOT NULL,
    rows_read       bigint NOT NULL,
    rows_applied    bigint NOT NULL,
    rows_superseded bigint NOT NULL,
    rows_skipped    bigint NOT NULL,
    rows_set_aside  bigint NOT NULL,
    bytes           bigint NOT NULL,
    error           text NOT NULL,
    started_at      timestamptz,
    ended_at        timestamptz,
    -- What endings of the run have counted already.
    counted         json NOT NULL,
    PRIMARY KEY (organization, run, resource),
    FOREIGN KEY (organization, run) REFERENCES run_history (organization, run) ON DELETE CASCADE
);
SELECT tenant('run_resources');
SELECT maintained('run_resources', 'SELECT, DELETE');

-- What a run used, which prices turn into money.
CREATE TABLE run_costs (
    organization   uuid NOT NULL,
    run            uuid NOT NULL,
    pipeline       uuid,
    at             timestamptz NOT NULL,
    compute_ms     bigint NOT NULL,
    -- Memory in MiB times that time.
    memory_mib_ms  bigint NOT NULL,
    bytes          bigint NOT NULL,
    PRIMARY KEY (organization, run),
    FOREIGN KEY (organization, run) REFERENCES run_history (organization, run) ON DELETE CASCADE
) WITH (fillfactor = 80);
CREATE INDEX run_costs_at ON run_costs (organization, at, run) INCLUDE (pipeline, compute_ms, memory_mib_ms, bytes);
CREATE INDEX run_costs_of_pipeline ON run_costs (organization, pipeline, at, run) INCLUDE (compute_ms, memory_mib_ms, bytes);
SELECT tenant('run_costs');
SELECT maintained('run_costs', 'SELECT, DELETE');

-- Endings of runs (resource empty) and of resources, summed up by the hour.
CREATE TABLE metrics_hourly (
    organization   uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    hour           timestamptz NOT NULL,
    -- All zero: of no stored pipeline.
    pipeline       uuid NOT NULL,
    source         text NOT NULL,
    sink           text NOT NULL,
    resource       text NOT NULL,
    status         text NOT NULL CHECK (status IN ('completed', 'failed', 'canceled')),
    runs           bigint NOT NULL,
    rows_read      bigint NOT NULL,
    rows_written   bigint NOT NULL,
    rows_set_aside bigint NOT NULL,
    bytes          bigint NOT NULL,
    duration_ms    bigint NOT NULL,
    min_ms         bigint NOT NULL,
    max_ms         bigint NOT NULL,
    compute_ms     bigint NOT NULL,
    memory_mib_ms  bigint NOT NULL,
    cpu_ms         bigint NOT NULL,
    moved_bytes    bigint NOT NULL,
    peak_bytes     bigint NOT NULL,
    PRIMARY KEY (organization, hour, pipeline, source, sink, resource, status)
) WITH (fillfactor = 80);
-- Whole runs and single resources are asked for apart.
CREATE INDEX metrics_hourly_runs ON metrics_hourly (organization, hour) WHERE resource = '';
CREATE INDEX metrics_hourly_resource ON metrics_hourly (organization, resource, hour) WHERE resource <> '';
SELECT tenant('metrics_hourly');
SELECT maintained('metrics_hourly', 'SELECT, DELETE');

-- How many of those endings took how long, by classes of equal ratio.
CREATE TABLE metrics_durations (
    organization uuid NOT NULL,
    hour         timestamptz NOT NULL,
    pipeline     uuid NOT NULL,
    source       text NOT NULL,
    sink         text NOT NULL,
    resource     text NOT NULL,
    status       text NOT NULL CHECK (status IN ('completed', 'failed', 'canceled')),
    class        integer NOT NULL CHECK (class >= 0),
    endings      bigint NOT NULL,
    PRIMARY KEY (organization, hour, pipeline, source, sink, resource, status, class),
    FOREIGN KEY (organization, hour, pipeline, source, sink, resource, status)
        REFERENCES metrics_hourly (organization, hour, pipeline, source, sink, resource, status) ON DELETE CASCADE
) WITH (fillfactor = 80);
SELECT tenant('metrics_durations');
SELECT maintained('metrics_durations', 'SELECT, DELETE');
