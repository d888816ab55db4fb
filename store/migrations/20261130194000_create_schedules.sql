-- +goose Up

CREATE TABLE schedules (
    organization   uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id             uuid NOT NULL,
    name           text NOT NULL CHECK (name <> ''),
    pipeline       uuid NOT NULL,
    -- Exactly one of these three says when.
    cron           text,
    every_seconds  bigint CHECK (every_seconds >= 60),
    once_at        timestamptz,
    time_zone      text NOT NULL,
    anchor         timestamptz,
    jitter_seconds bigint NOT NULL CHECK (jitter_seconds >= 0),
    overlap        text NOT NULL CHECK (overlap IN ('skip', 'allow', 'queue')),
    catch_up       text NOT NULL CHECK (catch_up IN ('none', 'one', 'all')),
    catch_up_limit integer NOT NULL CHECK (catch_up_limit > 0),
    options        jsonb NOT NULL,
    state          text NOT NULL CHECK (state IN ('active', 'paused', 'parked', 'finished')),
    reason         text NOT NULL DEFAULT '',
    version        bigint NOT NULL DEFAULT 1,
    next_instant   timestamptz,
    next_at        timestamptz,
    last_instant   timestamptz,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    deleted_at     timestamptz,
    PRIMARY KEY (organization, id),
    FOREIGN KEY (organization, pipeline) REFERENCES pipelines (organization, id) ON DELETE CASCADE,
    CHECK (num_nonnulls(cron, every_seconds, once_at) = 1),
    CHECK ((every_seconds IS NULL) = (anchor IS NULL)),
    -- What is active and not deleted has a next instant; nothing else does.
    CHECK ((state = 'active' AND deleted_at IS NULL) = (next_instant IS NOT NULL)),
    CHECK ((next_instant IS NULL) = (next_at IS NULL))
);
CREATE UNIQUE INDEX schedules_name ON schedules (organization, pipeline, name) WHERE deleted_at IS NULL;
CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;
SELECT tenant('schedules');
SELECT maintained('schedules', 'SELECT, DELETE');

CREATE TABLE schedule_occurrences (
    organization uuid NOT NULL,
    schedule     uuid NOT NULL,
    instant      timestamptz NOT NULL,
    pipeline     uuid NOT NULL,
    state        text NOT NULL CHECK (state IN ('due', 'queued', 'fired', 'skipped', 'failed')),
    reason       text NOT NULL DEFAULT '',
    detail       text NOT NULL DEFAULT '',
    missed       integer NOT NULL DEFAULT 0,
    catching_up  boolean NOT NULL DEFAULT false,
    runs         uuid[] NOT NULL DEFAULT '{}',
    busy         jsonb NOT NULL DEFAULT '[]',
    tries        integer NOT NULL DEFAULT 0,
    due_at       timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    concluded_at timestamptz,
    PRIMARY KEY (organization, schedule, instant),
    FOREIGN KEY (organization, schedule) REFERENCES schedules (organization, id) ON DELETE CASCADE,
    CHECK ((state = 'due') = (due_at IS NOT NULL)),
    CHECK ((state IN ('fired', 'skipped', 'failed')) = (concluded_at IS NOT NULL))
);
CREATE INDEX schedule_occurrences_due ON schedule_occurrences (due_at, organization, schedule, instant) WHERE state = 'due';
CREATE INDEX schedule_occurrences_queued ON schedule_occurrences (organization, pipeline, schedule, instant) WHERE state = 'queued';
-- For retention: occurrences are kept longer than the 15 days of P27.
CREATE INDEX schedule_occurrences_concluded ON schedule_occurrences (concluded_at) WHERE concluded_at IS NOT NULL;
SELECT tenant('schedule_occurrences');
SELECT maintained('schedule_occurrences', 'SELECT, DELETE');
