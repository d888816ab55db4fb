-- +goose Up

REVOKE ALL ON SCHEMA tranship FROM PUBLIC;
GRANT USAGE ON SCHEMA tranship TO tranship_app, tranship_maintenance;

-- +goose StatementBegin
-- The organization of the transaction; an error if there is none (P26).
CREATE FUNCTION organization() RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
RETURN current_setting('tranship.organization')::uuid;
-- +goose StatementEnd

-- +goose StatementBegin
-- Makes a table one of organizations': its rows are seen by tranship_app in
-- their own organization's transactions alone (invariant 9). The column is the
-- one that holds the organization.
CREATE FUNCTION tenant(tab regclass,
    privileges text DEFAULT 'SELECT, INSERT, UPDATE, DELETE', col name DEFAULT 'organization') RETURNS void
LANGUAGE plpgsql SET search_path = tranship AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', tab);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', tab);
    EXECUTE format('CREATE POLICY tenant ON %s TO tranship_app
        USING (%I = current_setting(''tranship.organization'')::uuid)
        WITH CHECK (%2$I = current_setting(''tranship.organization'')::uuid)', tab, col);
    EXECUTE format('GRANT %s ON %s TO tranship_app', privileges, tab);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Lets tranship_maintenance work on a table across organizations (P26).
CREATE FUNCTION maintained(tab regclass, privileges text DEFAULT 'SELECT, INSERT, UPDATE, DELETE') RETURNS void
LANGUAGE plpgsql SET search_path = tranship AS $$
BEGIN
    EXECUTE format('CREATE POLICY maintenance ON %s TO tranship_maintenance USING (true) WITH CHECK (true)', tab);
    EXECUTE format('GRANT %s ON %s TO tranship_maintenance', privileges, tab);
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION tenant, maintained FROM PUBLIC;

-- What this database needs of the code that uses it. Not an organization's.
CREATE TABLE meta (
    key   text PRIMARY KEY CHECK (key IN ('min_code_version')),
    value text NOT NULL
);
GRANT SELECT ON meta TO tranship_app, tranship_maintenance;
-- The newest migration that code must know to be let in: migrations only expand,
-- so that older code goes on until one says otherwise.
INSERT INTO meta VALUES ('min_code_version', '20261130190000');

CREATE TABLE organizations (
    id           uuid PRIMARY KEY,
    key          text NOT NULL CHECK (key ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    name         text NOT NULL CHECK (name <> ''),
    -- Who writes at the destinations (P1): one per organization.
    installation uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    deleted_at   timestamptz
);
-- A key is free again once its organization is deleted; the new one is another.
CREATE UNIQUE INDEX organizations_key ON organizations (key) WHERE deleted_at IS NULL;
SELECT tenant('organizations', 'SELECT, INSERT, UPDATE', 'id');
SELECT maintained('organizations');

-- Every change, written in its own transaction and never changed itself.
CREATE TABLE audit_log (
    organization uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id           uuid NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    actor_kind   text NOT NULL CHECK (actor_kind IN ('user', 'service_account', 'system')),
    actor_id     uuid,
    actor_key    uuid,
    actor_name   text NOT NULL,
    actor_role   text NOT NULL,
    request_id   text NOT NULL,
    action       text NOT NULL,
    kind         text NOT NULL,
    object       uuid,
    before       jsonb,
    after        jsonb,
    PRIMARY KEY (organization, id)
);
CREATE INDEX audit_log_object ON audit_log (organization, object, id);
CREATE INDEX audit_log_at ON audit_log (at);
SELECT tenant('audit_log', 'SELECT, INSERT');
SELECT maintained('audit_log', 'SELECT, DELETE');

-- What requests with an Idempotency-Key made.
CREATE TABLE idempotency (
    organization uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    key          text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    kind         text NOT NULL,
    hash         bytea NOT NULL,
    object       uuid NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization, key, kind)
);
CREATE INDEX idempotency_created_at ON idempotency (created_at);
SELECT tenant('idempotency', 'SELECT, INSERT');
SELECT maintained('idempotency', 'SELECT, DELETE');
