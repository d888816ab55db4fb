package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/store/internal/db"
)

const day = 24 * time.Hour

// Retention says how long rows are kept; a negative duration keeps them for ever.
type Retention struct {
	// Facts are dropped by months, once every run of the month has ended and the
	// month is older than this. 0 means 90 days.
	Facts time.Duration
	// Plans are frozen plans, splits, artifacts and remembered rows of runs that
	// have ended for good. 0 means 30 days.
	Plans time.Duration
	// Runs are runs that have ended, with all that is left of them. 0 means 400 days.
	Runs time.Duration
	// Audit is the audit log. 0 means 400 days.
	Audit time.Duration
	// Deliveries are notifications that were sent or given up. 0 means 90 days.
	Deliveries time.Duration
	// Occurrences are instants of schedules that are concluded. 0 means 90 days;
	// at least 15 (P27).
	Occurrences time.Duration
	// Idempotency are keys of requests. 0 means 16 days; at least 15 (P27).
	Idempotency time.Duration
	// History is the read model of runs that have ended, with its resources and
	// costs. 0 means 400 days.
	History time.Duration
	// Metrics are sums by the hour. 0 means 800 days, so that a year can be
	// compared with the one before.
	Metrics time.Duration
	// Deleted are schedules and notification rules that were deleted; what refers to
	// them is deleted first. 0 means 90 days.
	Deleted time.Duration
	// Operations are effects outside of the database that are concluded. 0 means
	// 30 days; at least 15, since their keys are a memory too (P27).
	Operations time.Duration
}

// leastMemory: a queue may deliver a message for 14 days, and what it
// repeats must be known until then (P27).
const leastMemory = 15 * day

// retentionBatch bounds the rows of a transaction, so that locks are short.
const retentionBatch = 5000

// retentionJob deletes rows of one kind.
type retentionJob struct {
	name  string
	after time.Duration
	run   func(ctx context.Context, q *db.Queries, seconds float64) (rows int64, err error)
}

func (r Retention) jobs() []retentionJob {
	return []retentionJob{
		{"facts", keep(r.Facts, 90*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldFacts(ctx, db.DeleteOldFactsParams{Seconds: s, Most: retentionBatch})
		}},
		{"plans", keep(r.Plans, 30*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldPlans(ctx, db.DeleteOldPlansParams{Seconds: s, Most: retentionBatch})
		}},
		{"splits", keep(r.Plans, 30*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldSplits(ctx, db.DeleteOldSplitsParams{Seconds: s, Most: retentionBatch})
		}},
		{"artifacts", keep(r.Plans, 30*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldArtifacts(ctx, db.DeleteOldArtifactsParams{Seconds: s, Most: retentionBatch})
		}},
		{"remembered rows", keep(r.Plans, 30*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldSeenRows(ctx, db.DeleteOldSeenRowsParams{Seconds: s, Most: retentionBatch})
		}},
		{"runs", keep(r.Runs, 400*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldRuns(ctx, db.DeleteOldRunsParams{Seconds: s, Most: retentionBatch / 50})
		}},
		{"audit log", keep(r.Audit, 400*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldAudit(ctx, db.DeleteOldAuditParams{Seconds: s, Most: retentionBatch})
		}},
		{"deliveries", keep(r.Deliveries, 90*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldDeliveries(ctx, db.DeleteOldDeliveriesParams{Seconds: s, Most: retentionBatch})
		}},
		{"occurrences", atLeast(keep(r.Occurrences, 90*day), leastMemory), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldOccurrences(ctx, db.DeleteOldOccurrencesParams{Seconds: s, Most: retentionBatch})
		}},
		{"idempotency keys", atLeast(keep(r.Idempotency, 16*day), leastMemory), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldIdempotency(ctx, db.DeleteOldIdempotencyParams{Seconds: s, Most: retentionBatch})
		}},
		{"history", keep(r.History, 400*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldHistory(ctx, db.DeleteOldHistoryParams{Seconds: s, Most: retentionBatch / 50})
		}},
		{"metrics", keep(r.Metrics, 800*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldMetrics(ctx, db.DeleteOldMetricsParams{Seconds: s, Most: retentionBatch / 50})
		}},
		{"daily metrics", keep(r.Metrics, 800*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldDailyMetrics(ctx, db.DeleteOldDailyMetricsParams{Seconds: s, Most: retentionBatch / 50})
		}},
		{"deleted schedules", keep(r.Deleted, 90*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldSchedules(ctx, db.DeleteOldSchedulesParams{Seconds: s, Most: retentionBatch})
		}},
		{"deleted rules", keep(r.Deleted, 90*day), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldRules(ctx, db.DeleteOldRulesParams{Seconds: s, Most: retentionBatch})
		}},
		{"operations", atLeast(keep(r.Operations, 30*day), leastMemory), func(ctx context.Context, q *db.Queries, s float64) (int64, error) {
			return q.DeleteOldOperations(ctx, db.DeleteOldOperationsParams{Seconds: s, Most: retentionBatch})
		}},
	}
}

func keep(given, usual time.Duration) time.Duration {
	if given == 0 {
		return usual
	}
	return given
}

// atLeast bounds what is not kept for ever.
func atLeast(d, least time.Duration) time.Duration {
	if d < 0 {
		return d
	}
	return max(d, least)
}

// Retain makes the months of facts that come and deletes what is too old, in
// short transactions. It returns the number of rows, or for months of facts
// partitions, that were deleted of each kind. One kind's error does not keep it
// from the others.
func (d *DB) Retain(ctx context.Context, r Retention) (deleted map[string]int64, err error) {
	deleted = map[string]int64{}
	errs := []error{d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		_, err := tx.Q().MakeFactPartitions(ctx, 2)
		return err
	})}
	if after := keep(r.Facts, 90*day); after >= 0 {
		n, err := d.dropMonths(ctx, after)
		deleted["months of facts"] = n
		errs = append(errs, err)
	}
	for _, j := range r.jobs() {
		if j.after < 0 {
			continue
		}
		for n := int64(1); n > 0; {
			err := d.Maintain(ctx, func(ctx context.Context, tx Tx) (err error) {
				n, err = j.run(ctx, tx.Q(), j.after.Seconds())
				return err
			})
			if err != nil {
				errs = append(errs, fmt.Errorf("delete old %s: %w", j.name, err))
				break
			}
			deleted[j.name] += n
		}
	}
	return deleted, errors.Join(errs...)
}

func (d *DB) dropMonths(ctx context.Context, after time.Duration) (n int64, err error) {
	var months []string
	if err := d.Maintain(ctx, func(ctx context.Context, tx Tx) (err error) {
		months, err = tx.Q().OldFactPartitions(ctx, after.Seconds())
		return err
	}); err != nil {
		return 0, fmt.Errorf("find old months of facts: %w", err)
	}
	for _, month := range months {
		if err := d.Maintain(ctx, func(ctx context.Context, tx Tx) error { return tx.Q().DropFactPartition(ctx, month) }); err != nil {
			return n, fmt.Errorf("drop the facts of %s: %w", month, err)
		}
		n++
	}
	return n, nil
}
