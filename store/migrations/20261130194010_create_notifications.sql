-- +goose Up

CREATE TABLE notification_rules (
    organization        uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    id                  uuid NOT NULL,
    name                text NOT NULL CHECK (name <> ''),
    -- NULL: all pipelines.
    pipeline            uuid,
    resource            text NOT NULL DEFAULT '',
    events              text[] NOT NULL CHECK (cardinality(events) > 0),
    stale_seconds       bigint NOT NULL DEFAULT 0 CHECK (stale_seconds >= 0),
    no_progress_seconds bigint NOT NULL DEFAULT 0 CHECK (no_progress_seconds >= 0),
    channel             text NOT NULL CHECK (channel IN ('webhook', 'slack', 'email')),
    url                 text NOT NULL DEFAULT '',
    -- References to secrets, never their values (invariant 10).
    url_secret          text NOT NULL DEFAULT '',
    recipients          text[] NOT NULL DEFAULT '{}',
    paused              boolean NOT NULL DEFAULT false,
    secret              text NOT NULL DEFAULT '',
    old_secret          text NOT NULL DEFAULT '',
    old_until           timestamptz,
    secret_prefix       text NOT NULL DEFAULT '',
    -- When the rule has to look at what it watches; NULL: not before something happens.
    watch_at            timestamptz,
    version             bigint NOT NULL DEFAULT 1,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    deleted_at          timestamptz,
    PRIMARY KEY (organization, id),
    FOREIGN KEY (organization, pipeline) REFERENCES pipelines (organization, id) ON DELETE CASCADE,
    CHECK (watch_at IS NULL OR deleted_at IS NULL AND NOT paused)
);
CREATE UNIQUE INDEX notification_rules_name ON notification_rules (organization, name) WHERE deleted_at IS NULL;
CREATE INDEX notification_rules_watch ON notification_rules (watch_at) WHERE watch_at IS NOT NULL;
SELECT tenant('notification_rules');
SELECT maintained('notification_rules', 'SELECT, DELETE');

-- The ledger: one row for each rule and event, whose id is made of the two.
CREATE TABLE notification_deliveries (
    organization  uuid NOT NULL,
    id            uuid NOT NULL,
    rule          uuid NOT NULL,
    event         text NOT NULL,
    event_key     text NOT NULL,
    pipeline      uuid,
    run           uuid,
    channel       text NOT NULL CHECK (channel IN ('webhook', 'slack', 'email')),
    state         text NOT NULL CHECK (state IN ('pending', 'sending', 'sent', 'dead', 'canceled')),
    payload       json NOT NULL,
    attempts      integer NOT NULL DEFAULT 0,
    interruptions integer NOT NULL DEFAULT 0,
    -- Bumped by every claim: who sends settles only under its own.
    claim         bigint NOT NULL DEFAULT 0,
    next_at       timestamptz,
    error         text NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at       timestamptz,
    PRIMARY KEY (organization, id),
    UNIQUE (organization, rule, event_key),
    FOREIGN KEY (organization, rule) REFERENCES notification_rules (organization, id) ON DELETE CASCADE,
    CHECK ((state IN ('pending', 'sending')) = (next_at IS NOT NULL)),
    CHECK (state <> 'sent' OR sent_at IS NOT NULL)
);
CREATE INDEX notification_deliveries_due ON notification_deliveries (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX notification_deliveries_recent ON notification_deliveries (organization, created_at, id);
CREATE INDEX notification_deliveries_rule ON notification_deliveries (organization, rule, created_at, id);
CREATE INDEX notification_deliveries_run ON notification_deliveries (organization, run, created_at, id) WHERE run IS NOT NULL;
CREATE INDEX notification_deliveries_state ON notification_deliveries (organization, state, created_at, id);
-- For retention.
CREATE INDEX notification_deliveries_settled ON notification_deliveries (created_at) WHERE next_at IS NULL;
SELECT tenant('notification_deliveries');
SELECT maintained('notification_deliveries', 'SELECT, DELETE');

CREATE TABLE notification_attempts (
    organization uuid NOT NULL,
    delivery     uuid NOT NULL,
    claim        bigint NOT NULL,
    number       integer NOT NULL,
    at           timestamptz NOT NULL,
    status       integer NOT NULL,
    error        text NOT NULL,
    took_ms      bigint NOT NULL,
    PRIMARY KEY (organization, delivery, claim),
    FOREIGN KEY (organization, delivery) REFERENCES notification_deliveries (organization, id) ON DELETE CASCADE
);
SELECT tenant('notification_attempts', 'SELECT, INSERT');
SELECT maintained('notification_attempts', 'SELECT, DELETE');
