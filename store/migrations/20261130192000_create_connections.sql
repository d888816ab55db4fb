-- +goose Up

CREATE TABLE connections (
    organization uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id           uuid NOT NULL,
    name         text NOT NULL CHECK (name <> ''),
    role         text NOT NULL CHECK (role IN ('source', 'sink')),
    connector    text NOT NULL CHECK (connector <> ''),
    -- json, not jsonb: what was written comes back as it was.
    config       json NOT NULL,
    -- References by path, never a value (invariant 10).
    secrets      json NOT NULL,
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    deleted_at   timestamptz,
    PRIMARY KEY (organization, id)
);
CREATE UNIQUE INDEX connections_name ON connections (organization, name) WHERE deleted_at IS NULL;
SELECT tenant('connections', 'SELECT, INSERT, UPDATE');

CREATE TABLE connection_versions (
    organization uuid NOT NULL,
    connection   uuid NOT NULL,
    version      bigint NOT NULL,
    name         text NOT NULL,
    config       json NOT NULL,
    secrets      json NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    created_by   text NOT NULL,
    PRIMARY KEY (organization, connection, version),
    FOREIGN KEY (organization, connection) REFERENCES connections (organization, id) ON DELETE CASCADE
);
SELECT tenant('connection_versions', 'SELECT, INSERT');

-- Values of the provider local, each under a data key of its own that the
-- master key wraps.
CREATE TABLE secrets (
    organization uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    name         text NOT NULL CHECK (name <> ''),
    -- Of the value: another value has another.
    id           uuid NOT NULL,
    version      bigint NOT NULL DEFAULT 1,
    -- The connection with which the secret ends; NULL for a secret of its own.
    owner        uuid,
    -- Which master key wraps data_key.
    key          text NOT NULL,
    data_key     bytea NOT NULL,
    value        bytea NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization, name),
    FOREIGN KEY (organization, owner) REFERENCES connections (organization, id) ON DELETE CASCADE
);
CREATE INDEX secrets_owner ON secrets (organization, owner);
CREATE INDEX secrets_key ON secrets (key);
SELECT tenant('secrets');
SELECT maintained('secrets', 'SELECT, UPDATE');

-- Which secrets live connections refer to: these cannot be deleted.
CREATE TABLE connection_secrets (
    organization uuid NOT NULL,
    connection   uuid NOT NULL,
    path         text NOT NULL,
    secret       text NOT NULL,
    PRIMARY KEY (organization, connection, path),
    FOREIGN KEY (organization, connection) REFERENCES connections (organization, id) ON DELETE CASCADE,
    CONSTRAINT connection_secrets_secret FOREIGN KEY (organization, secret) REFERENCES secrets (organization, name)
);
CREATE INDEX connection_secrets_secret ON connection_secrets (organization, secret);
SELECT tenant('connection_secrets');
