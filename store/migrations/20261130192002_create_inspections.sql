-- +goose Up

CREATE TABLE inspections (
    organization uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id           uuid NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('test', 'discover', 'columns', 'validate')),
    state        text NOT NULL CHECK (state IN ('requested', 'running', 'succeeded', 'failed')),
    connection   uuid,
    pipeline     uuid,
    number       bigint,
    resource     text NOT NULL DEFAULT '',
    pattern      text NOT NULL DEFAULT '',
    overlay      json,
    result       json,
    error        text NOT NULL DEFAULT '',
    hint         text NOT NULL DEFAULT '',
    -- Whose it is while it runs, and until when.
    claim        uuid,
    lease_until  timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    started_at   timestamptz,
    ended_at     timestamptz,
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (organization, id),
    FOREIGN KEY (organization, connection) REFERENCES connections (organization, id) ON DELETE CASCADE,
    FOREIGN KEY (organization, pipeline, number) REFERENCES pipeline_versions (organization, pipeline, number) ON DELETE CASCADE,
    CHECK ((kind = 'validate') = (pipeline IS NOT NULL)),
    CHECK ((kind = 'validate') = (connection IS NULL)),
    CHECK ((state = 'running') = (claim IS NOT NULL)),
    CHECK ((claim IS NULL) = (lease_until IS NULL))
);
CREATE INDEX inspections_requested ON inspections (created_at) WHERE state = 'requested';
CREATE INDEX inspections_running ON inspections (lease_until) WHERE state = 'running';
CREATE INDEX inspections_expires_at ON inspections (expires_at);
SELECT tenant('inspections', 'SELECT, INSERT');
SELECT maintained('inspections', 'SELECT, UPDATE, DELETE');
