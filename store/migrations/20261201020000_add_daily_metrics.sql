-- +goose Up

-- The hourly sums again, by the day of UTC: what is asked of whole days reads a
-- twenty-fourth of the rows.
CREATE TABLE metrics_daily (
    organization   uuid NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    day            timestamptz NOT NULL,
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
    PRIMARY KEY (organization, day, pipeline, source, sink, resource, status)
) WITH (fillfactor = 80);
CREATE INDEX metrics_daily_runs ON metrics_daily (organization, day) WHERE resource = '';
CREATE INDEX metrics_daily_resource ON metrics_daily (organization, resource, day) WHERE resource <> '';
CREATE INDEX metrics_daily_day ON metrics_daily (day);

CREATE TABLE metrics_daily_durations (
    organization uuid NOT NULL,
    day          timestamptz NOT NULL,
    pipeline     uuid NOT NULL,
    source       text NOT NULL,
    sink         text NOT NULL,
    resource     text NOT NULL,
    status       text NOT NULL CHECK (status IN ('completed', 'failed', 'canceled')),
    class        integer NOT NULL CHECK (class >= 0),
    endings      bigint NOT NULL,
    PRIMARY KEY (organization, day, pipeline, source, sink, resource, status, class),
    FOREIGN KEY (organization, day, pipeline, source, sink, resource, status)
        REFERENCES metrics_daily (organization, day, pipeline, source, sink, resource, status) ON DELETE CASCADE
) WITH (fillfactor = 80);

-- Row-level security hides the rows of other organizations from the owner too,
-- unless it is lifted for as long as the sums so far are taken over.
ALTER TABLE metrics_hourly NO FORCE ROW LEVEL SECURITY;
ALTER TABLE metrics_durations NO FORCE ROW LEVEL SECURITY;
LOCK TABLE metrics_hourly, metrics_durations IN SHARE MODE;
INSERT INTO metrics_daily
SELECT organization, date_trunc('day', hour, 'UTC'), pipeline, source, sink, resource, status, sum(runs), sum(rows_read), sum(rows_written),
    sum(rows_set_aside), sum(bytes), sum(duration_ms), coalesce(min(min_ms) FILTER (WHERE runs > 0), 0), max(max_ms), sum(compute_ms),
    sum(memory_mib_ms), sum(cpu_ms), sum(moved_bytes), max(peak_bytes)
FROM metrics_hourly GROUP BY 1, 2, 3, 4, 5, 6, 7;
INSERT INTO metrics_daily_durations
SELECT organization, date_trunc('day', hour, 'UTC'), pipeline, source, sink, resource, status, class, sum(endings)
FROM metrics_durations GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;
ALTER TABLE metrics_hourly FORCE ROW LEVEL SECURITY;
ALTER TABLE metrics_durations FORCE ROW LEVEL SECURITY;

SELECT tenant('metrics_daily');
SELECT maintained('metrics_daily', 'SELECT, DELETE');
SELECT tenant('metrics_daily_durations');
SELECT maintained('metrics_daily_durations', 'SELECT, DELETE');

-- Whatever writes hours adds to their days in the same transaction, at its end: so
-- code that knows of no days does it too, and all rows of hours are locked before
-- those of days, in the order of the writes.
-- +goose StatementBegin
CREATE FUNCTION add_to_day() RETURNS trigger
LANGUAGE plpgsql SET search_path = tranship AS $$
DECLARE
    o metrics_hourly;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        o := OLD;
    END IF;
    INSERT INTO metrics_daily AS m VALUES (NEW.organization, date_trunc('day', NEW.hour, 'UTC'), NEW.pipeline, NEW.source, NEW.sink, NEW.resource, NEW.status,
        NEW.runs - coalesce(o.runs, 0), NEW.rows_read - coalesce(o.rows_read, 0), NEW.rows_written - coalesce(o.rows_written, 0),
        NEW.rows_set_aside - coalesce(o.rows_set_aside, 0), NEW.bytes - coalesce(o.bytes, 0), NEW.duration_ms - coalesce(o.duration_ms, 0),
        NEW.min_ms, NEW.max_ms, NEW.compute_ms - coalesce(o.compute_ms, 0), NEW.memory_mib_ms - coalesce(o.memory_mib_ms, 0),
        NEW.cpu_ms - coalesce(o.cpu_ms, 0), NEW.moved_bytes - coalesce(o.moved_bytes, 0), NEW.peak_bytes)
    ON CONFLICT (organization, day, pipeline, source, sink, resource, status) DO UPDATE SET
        runs = m.runs + excluded.runs, rows_read = m.rows_read + excluded.rows_read, rows_written = m.rows_written + excluded.rows_written,
        rows_set_aside = m.rows_set_aside + excluded.rows_set_aside, bytes = m.bytes + excluded.bytes,
        duration_ms = m.duration_ms + excluded.duration_ms,
        -- An hour without an ending has no least duration yet.
        min_ms = CASE WHEN NEW.runs = 0 THEN m.min_ms WHEN m.runs = 0 THEN excluded.min_ms ELSE least(m.min_ms, excluded.min_ms) END,
        max_ms = greatest(m.max_ms, excluded.max_ms), compute_ms = m.compute_ms + excluded.compute_ms,
        memory_mib_ms = m.memory_mib_ms + excluded.memory_mib_ms, cpu_ms = m.cpu_ms + excluded.cpu_ms,
        moved_bytes = m.moved_bytes + excluded.moved_bytes, peak_bytes = greatest(m.peak_bytes, excluded.peak_bytes);
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION add_durations_to_day() RETURNS trigger
LANGUAGE plpgsql SET search_path = tranship AS $$
DECLARE
    before bigint := 0;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        before := OLD.endings;
    END IF;
    INSERT INTO metrics_daily_durations AS m VALUES (NEW.organization, date_trunc('day', NEW.hour, 'UTC'), NEW.pipeline, NEW.source, NEW.sink,
        NEW.resource, NEW.status, NEW.class, NEW.endings - before)
    ON CONFLICT (organization, day, pipeline, source, sink, resource, status, class) DO UPDATE SET endings = m.endings + excluded.endings;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE CONSTRAINT TRIGGER add_to_day AFTER INSERT OR UPDATE ON metrics_hourly DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION add_to_day();
CREATE CONSTRAINT TRIGGER add_durations_to_day AFTER INSERT OR UPDATE ON metrics_durations DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION add_durations_to_day();
