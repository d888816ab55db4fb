-- +goose Up

-- A run is one of a pipeline of its organization. Pipelines are deleted softly,
-- so that their runs keep them.
ALTER TABLE runs ADD FOREIGN KEY (organization, pipeline) REFERENCES pipelines (organization, id);
