-- +goose Up

-- Runs in a state that few are in, the newest first.
CREATE INDEX runs_by_state ON runs (organization, state, created_at, id);
