-- +goose Up

-- People, by the identity that an OIDC issuer vouches for. One row per
-- organization: nothing of a person crosses organizations.
CREATE TABLE members (
    organization uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id           uuid NOT NULL,
    name         text NOT NULL CHECK (name <> ''),
    email        text CHECK (email <> ''),
    issuer       text CHECK (issuer <> ''),
    subject      text CHECK (subject <> ''),
    role         text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz,
    deleted_at   timestamptz,
    PRIMARY KEY (organization, id),
    CHECK ((issuer IS NULL) = (subject IS NULL)),
    CHECK (email IS NOT NULL OR subject IS NOT NULL)
);
CREATE UNIQUE INDEX members_identity ON members (organization, issuer, subject) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX members_email ON members (organization, lower(email)) WHERE deleted_at IS NULL;
SELECT tenant('members', 'SELECT, INSERT, UPDATE');

CREATE TABLE service_accounts (
    organization uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id           uuid NOT NULL,
    name         text NOT NULL CHECK (name <> ''),
    description  text NOT NULL DEFAULT '',
    role         text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    deleted_at   timestamptz,
    PRIMARY KEY (organization, id)
);
CREATE UNIQUE INDEX service_accounts_name ON service_accounts (organization, name) WHERE deleted_at IS NULL;
SELECT tenant('service_accounts', 'SELECT, INSERT, UPDATE');

-- Keys are kept as a hash: their text is shown once.
CREATE TABLE api_keys (
    organization    uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id              uuid NOT NULL,
    service_account uuid NOT NULL,
    name            text NOT NULL CHECK (name <> ''),
    prefix          text NOT NULL CHECK (length(prefix) BETWEEN 8 AND 16),
    hash            bytea NOT NULL CHECK (length(hash) = 32),
    role            text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    scopes          text[] NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT now(),
    expires_at      timestamptz,
    revoked_at      timestamptz,
    rotated_to      uuid,
    PRIMARY KEY (organization, id),
    FOREIGN KEY (organization, service_account) REFERENCES service_accounts (organization, id),
    FOREIGN KEY (organization, rotated_to) REFERENCES api_keys (organization, id)
);
CREATE INDEX api_keys_account ON api_keys (organization, service_account, id);
SELECT tenant('api_keys', 'SELECT, INSERT, UPDATE');

-- +goose StatementBegin
-- The greater, the more it may.
CREATE FUNCTION role_rank(role text) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE role WHEN 'viewer' THEN 1 WHEN 'operator' THEN 2 WHEN 'admin' THEN 3 ELSE 0 END;
-- +goose StatementEnd

-- +goose StatementBegin
-- Fails unless the caller of a request may still come in with the role that it
-- acts in: TR401 if not at all, TR403 with the role that it has now if that is
-- less. The first statement of every transaction of a request.
CREATE FUNCTION check_caller(caller_kind text, caller_id uuid, caller_key uuid, caller_hash bytea, caller_role text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    k api_keys%ROWTYPE;
    now_role text;
BEGIN
    IF NOT EXISTS (SELECT FROM organizations o WHERE o.id = organization() AND o.deleted_at IS NULL) THEN
        RAISE EXCEPTION 'the organization does not exist' USING ERRCODE = 'TR401';
    END IF;
    IF caller_kind = 'service_account' THEN
        SELECT * INTO k FROM api_keys a WHERE a.organization = organization() AND a.id = caller_key;
        IF NOT FOUND OR k.hash <> caller_hash OR k.service_account <> caller_id THEN
            RAISE EXCEPTION 'the key is not known' USING ERRCODE = 'TR401';
        ELSIF k.revoked_at IS NOT NULL THEN
            RAISE EXCEPTION 'the key is revoked' USING ERRCODE = 'TR401';
        ELSIF k.expires_at <= clock_timestamp() THEN
            RAISE EXCEPTION 'the key has expired' USING ERRCODE = 'TR401';
        END IF;
        SELECT s.role INTO now_role FROM service_accounts s
        WHERE s.organization = organization() AND s.id = caller_id AND s.deleted_at IS NULL;
    ELSE
        SELECT m.role INTO now_role FROM members m
        WHERE m.organization = organization() AND m.id = caller_id AND m.deleted_at IS NULL;
    END IF;
    IF now_role IS NULL THEN
        RAISE EXCEPTION 'the caller is no longer part of the organization' USING ERRCODE = 'TR401';
    ELSIF role_rank(now_role) < role_rank(caller_role) THEN
        RAISE EXCEPTION '%', now_role USING ERRCODE = 'TR403';
    END IF;
END
$$;
-- +goose StatementEnd
