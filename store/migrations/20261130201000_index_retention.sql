-- +goose Up

-- What is deleted by age is found by age, over all organizations.
CREATE INDEX run_history_ended ON run_history (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX metrics_hourly_hour ON metrics_hourly (hour);
CREATE INDEX schedules_deleted ON schedules (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX notification_rules_deleted ON notification_rules (deleted_at) WHERE deleted_at IS NOT NULL;
