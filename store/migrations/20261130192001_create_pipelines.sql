-- +goose Up

CREATE TABLE pipelines (
    organization uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id           uuid NOT NULL,
    name         text NOT NULL CHECK (name <> ''),
    description  text NOT NULL DEFAULT '',
    paused       boolean NOT NULL DEFAULT false,
    version      bigint NOT NULL DEFAULT 1,
    -- The newest version of the graph.
    current      bigint NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    deleted_at   timestamptz,
    PRIMARY KEY (organization, id)
);
CREATE UNIQUE INDEX pipelines_name ON pipelines (organization, name) WHERE deleted_at IS NULL;
SELECT tenant('pipelines', 'SELECT, INSERT, UPDATE');

-- Immutable, and only growing.
CREATE TABLE pipeline_versions (
    organization uuid NOT NULL,
    pipeline     uuid NOT NULL,
    number       bigint NOT NULL CHECK (number > 0),
    hash         text NOT NULL,
    graph        json NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    created_by   text NOT NULL,
    PRIMARY KEY (organization, pipeline, number),
    FOREIGN KEY (organization, pipeline) REFERENCES pipelines (organization, id) ON DELETE CASCADE
);
SELECT tenant('pipeline_versions', 'SELECT, INSERT');
ALTER TABLE pipelines ADD FOREIGN KEY (organization, id, current)
    REFERENCES pipeline_versions (organization, pipeline, number) DEFERRABLE INITIALLY DEFERRED;

-- Which connections a version's nodes have.
CREATE TABLE pipeline_uses (
    organization uuid NOT NULL,
    pipeline     uuid NOT NULL,
    number       bigint NOT NULL,
    connection   uuid NOT NULL,
    PRIMARY KEY (organization, pipeline, number, connection),
    FOREIGN KEY (organization, pipeline, number) REFERENCES pipeline_versions (organization, pipeline, number) ON DELETE CASCADE,
    FOREIGN KEY (organization, connection) REFERENCES connections (organization, id)
);
CREATE INDEX pipeline_uses_connection ON pipeline_uses (organization, connection, pipeline, number);
SELECT tenant('pipeline_uses', 'SELECT, INSERT');

-- What engine and destinations remember the routes of live pipelines by. A route
-- keeps its name over all versions.
CREATE TABLE route_names (
    organization uuid NOT NULL,
    pipeline     uuid NOT NULL,
    route_key    text NOT NULL,
    name         text NOT NULL,
    PRIMARY KEY (organization, pipeline, route_key),
    UNIQUE (organization, name),
    FOREIGN KEY (organization, pipeline) REFERENCES pipelines (organization, id) ON DELETE CASCADE
);
SELECT tenant('route_names', 'SELECT, INSERT, DELETE');

CREATE TABLE pipeline_routes (
    organization uuid NOT NULL,
    pipeline     uuid NOT NULL,
    number       bigint NOT NULL,
    route_key    text NOT NULL,
    -- The order of the routes in the graph.
    position     integer NOT NULL,
    source       text NOT NULL,
    sink         text NOT NULL,
    name         text NOT NULL,
    hash         text NOT NULL,
    PRIMARY KEY (organization, pipeline, number, route_key),
    FOREIGN KEY (organization, pipeline, number) REFERENCES pipeline_versions (organization, pipeline, number) ON DELETE CASCADE
);
SELECT tenant('pipeline_routes', 'SELECT, INSERT');
