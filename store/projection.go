package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/store/internal/db"
)

// factsAtOnce is how many facts of each run are folded in one transaction.
const factsAtOnce = 1000

// Projection implements the ports of package projection.
type Projection struct{ db *DB }

var (
	_ projection.Store = (*Projection)(nil)
	_ projection.Relay = (*Projection)(nil)

	_ projection.Unconfirmed = (*Projection)(nil)
)

// Projection returns the store of read models.
func (d *DB) Projection() *Projection { return &Projection{d} }

// Pending implements [projection.Relay].
func (p *Projection) Pending(ctx context.Context, limit int) (out []projection.RunRef, err error) {
	err = p.db.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().PendingFacts(ctx, int32(limit))
		out = nil
		for _, r := range rows {
			out = append(out, projection.RunRef{Organization: r.Organization, Run: r.Run})
		}
		return err
	})
	return out, err
}

// OfRun implements [projection.Unconfirmed].
func (p *Projection) OfRun(ctx context.Context, r projection.RunRef) (out projection.Waiting, err error) {
	err = p.db.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		row, err := tx.Q().UnconfirmedFactsOfRun(ctx, db.UnconfirmedFactsOfRunParams{Organization: r.Organization, Run: r.Run})
		out = projection.Waiting{RunRef: r, First: row.First, Last: row.Last}
		return err
	})
	return out, err
}

// Since implements [projection.Unconfirmed].
func (p *Projection) Since(ctx context.Context, age time.Duration, limit int) (out []projection.Waiting, err error) {
	err = p.db.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().UnconfirmedFacts(ctx, db.UnconfirmedFactsParams{Age: age.Seconds(), Count: int32(limit)})
		out = nil
		for _, r := range rows {
			out = append(out, projection.Waiting{RunRef: projection.RunRef{Organization: r.Organization, Run: r.Run}, First: r.First, Last: r.Last})
		}
		return err
	})
	return out, err
}

// Facts implements [projection.Unconfirmed].
func (p *Projection) Facts(ctx context.Context, r projection.RunRef, after int64, limit int) ([]events.Fact, error) {
	return p.db.RunFacts(ctx, r.Organization, r.Run, after, limit)
}

// Confirm implements [projection.Relay].
func (p *Projection) Confirm(ctx context.Context, through map[projection.RunRef]int64) error {
	params := make([]db.ConfirmFactsParams, 0, len(through))
	for r, last := range through {
		params = append(params, db.ConfirmFactsParams{Organization: r.Organization, Run: r.Run, Last: last})
	}
	slices.SortFunc(params, func(a, b db.ConfirmFactsParams) int {
		return cmp.Or(bytes.Compare(a.Organization[:], b.Organization[:]), bytes.Compare(a.Run[:], b.Run[:]))
	})
	return p.db.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		return execBatch(tx.Q().ConfirmFacts(ctx, params))
	})
}

// batchResults is what sqlc's batches of one statement have in common.
type batchResults interface {
	Exec(f func(int, error))
	Close() error
}

// execBatch runs a batch and returns its first error.
func execBatch(b batchResults) error {
	var first error
	b.Exec(func(_ int, err error) {
		if first == nil {
			first = err
		}
	})
	return errors.Join(first, b.Close())
}

// Project implements [projection.Store]. Locks are taken in one order: rows of
// the history by run, buckets of metrics by their key, deliveries, rules by id.
func (p *Projection) Project(ctx context.Context, organization uuid.UUID, runs []uuid.UUID) (out projection.Outcome, err error) {
	err = p.db.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		f, err := loadFolds(ctx, tx, runs)
		if err != nil {
			return err
		}
		if err := f.fold(ctx, tx); err != nil {
			return err
		}
		if err := f.save(ctx, tx); err != nil {
			return err
		}
		if err := f.tell(ctx, tx); err != nil {
			return err
		}
		out = f.out
		return nil
	})
	return out, err
}

// folds is the folding of some runs in one transaction.
type folds struct {
	runs  []*projection.Run // by id
	byID  map[uuid.UUID]*projection.Run
	res   map[uuid.UUID]projection.Resources
	moved map[uuid.UUID]bool
	batch projection.Batch
	out   projection.Outcome
}

func loadFolds(ctx context.Context, tx Tx, runs []uuid.UUID) (*folds, error) {
	q, organization := tx.Q(), tx.Organization()
	if err := q.BeginHistory(ctx, db.BeginHistoryParams{Organization: organization, Runs: runs}); err != nil {
		return nil, fmt.Errorf("begin history: %w", err)
	}
	rows, err := q.LockHistory(ctx, db.LockHistoryParams{Organization: organization, Runs: runs})
	if err != nil {
		return nil, fmt.Errorf("lock history: %w", err)
	}
	f := &folds{
		byID: map[uuid.UUID]*projection.Run{}, res: map[uuid.UUID]projection.Resources{}, moved: map[uuid.UUID]bool{},
		out: projection.Outcome{Through: map[uuid.UUID]int64{}},
	}
	for _, row := range rows {
		r, err := historyOf(row)
		if err != nil {
			return nil, err
		}
		f.runs = append(f.runs, r)
		f.byID[r.ID], f.res[r.ID], f.out.Through[r.ID] = r, projection.Resources{}, r.Folded
	}
	resources, err := q.HistoryResources(ctx, db.HistoryResourcesParams{Organization: organization, Runs: runs})
	if err != nil {
		return nil, fmt.Errorf("read resources: %w", err)
	}
	for _, row := range resources {
		res, err := resourceOf(row)
		if err != nil {
			return nil, err
		}
		f.res[row.Run][row.Resource] = res
	}
	return f, nil
}

func (f *folds) fold(ctx context.Context, tx Tx) error {
	ids := make([]uuid.UUID, len(f.runs))
	for i, r := range f.runs {
		ids[i] = r.ID
	}
	facts, err := tx.Q().UnfoldedFacts(ctx, db.UnfoldedFactsParams{Organization: tx.Organization(), Runs: ids, Count: factsAtOnce})
	if err != nil {
		return fmt.Errorf("read facts: %w", err)
	}
	count := map[uuid.UUID]int{}
	for _, row := range facts {
		r := f.byID[row.Run]
		fact := events.Fact{
			ID: row.ID, RunID: row.Run, Number: row.Number, Type: events.Type(row.Type), Version: int(row.Version),
			At: row.At.UTC().Add(time.Duration(row.Nanos)), Payload: row.Payload,
		}
		if err := projection.Fold(r, f.res[r.ID], fact, &f.batch); err != nil {
			return err
		}
		f.moved[r.ID] = true
		if count[r.ID]++; count[r.ID] == factsAtOnce {
			f.out.More = append(f.out.More, r.ID)
		}
	}
	f.out.Facts = len(facts)
	ended := map[uuid.UUID]bool{}
	for _, r := range f.runs {
		f.out.Through[r.ID] = r.Folded
		if !r.EndedAt.IsZero() && r.Pipeline != uuid.Nil && !ended[r.Pipeline] {
			ended[r.Pipeline] = true
			f.out.Ended = append(f.out.Ended, r.Pipeline)
		}
	}
	return nil
}

// save writes what folding changed, a pipelined batch for each kind of row.
func (f *folds) save(ctx context.Context, tx Tx) error {
	organization := tx.Organization()
	var history []db.UpdateHistoryParams
	var resources []db.UpsertResourceParams
	var costs []db.UpsertCostParams
	for _, r := range f.runs {
		if !f.moved[r.ID] {
			continue
		}
		row, err := historyParams(organization, r)
		if err != nil {
			return err
		}
		history = append(history, row)
		if r.Usage != (projection.Usage{}) {
			costs = append(costs, db.UpsertCostParams{
				Organization: organization, Run: r.ID, Pipeline: optional(r.Pipeline), At: r.CreatedAt,
				ComputeMs: r.Compute, MemoryMibMs: r.Memory, Bytes: r.Moved,
			})
		}
		for _, res := range f.res[r.ID].Dirty() {
			row, err := resourceParams(organization, r.ID, res)
			if err != nil {
				return err
			}
			resources = append(resources, row)
		}
	}
	metrics, durations := metricParams(organization, f.batch.Metrics)
	q := tx.Q()
	for _, b := range []struct {
		what string
		n    int
		send func() batchResults
	}{
		{"history", len(history), func() batchResults { return q.UpdateHistory(ctx, history) }},
		{"resources", len(resources), func() batchResults { return q.UpsertResource(ctx, resources) }},
		{"costs", len(costs), func() batchResults { return q.UpsertCost(ctx, costs) }},
		{"metrics", len(metrics), func() batchResults { return q.AddMetrics(ctx, metrics) }},
		{"durations", len(durations), func() batchResults { return q.AddDurations(ctx, durations) }},
	} {
		if b.n == 0 {
			continue
		}
		if err := execBatch(b.send()); err != nil {
			return fmt.Errorf("store %s: %w", b.what, err)
		}
	}
	return nil
}

// tell writes deliveries, and lets rules that watch look in time.
func (f *folds) tell(ctx context.Context, tx Tx) error {
	if len(f.batch.Events) == 0 {
		return nil
	}
	rules, err := liveRules(ctx, tx)
	if err != nil {
		return err
	}
	if err := deliver(ctx, tx, rules, f.batch.Events...); err != nil {
		return err
	}
	watch := map[uuid.UUID]time.Time{}
	for _, e := range f.batch.Events {
		for _, r := range rules {
			at, ok := r.WatchFrom(e)
			if old, set := watch[r.ID]; ok && (!set || at.Before(old)) {
				watch[r.ID] = at
			}
		}
	}
	for _, r := range sortedRules(rules) {
		at, ok := watch[r.ID]
		if !ok {
			continue
		}
		n, err := tx.Q().WatchNoLater(ctx, db.WatchNoLaterParams{Organization: tx.Organization(), ID: r.ID, At: at})
		if err != nil {
			return fmt.Errorf("arm rule %s: %w", r.ID, err)
		}
		if n > 0 {
			tx.Hint(Hint{Kind: HintDelivery, Organization: tx.Organization()})
			tx.owe()
		}
	}
	return nil
}

func sortedRules(rules []notify.Rule) []notify.Rule {
	return slices.SortedFunc(slices.Values(rules), func(a, b notify.Rule) int { return bytes.Compare(a.ID[:], b.ID[:]) })
}

// Watch implements [notify.Ledger].
func (n *Notifications) Watch(ctx context.Context, r notify.RuleRef, now time.Time, look func(notify.Rule, []notify.Watched) ([]notify.Event, time.Time)) error {
	return n.db.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		q := tx.Q()
		row, err := q.LockRule(ctx, db.LockRuleParams{Organization: r.Organization, ID: r.Rule})
		if err != nil {
			// It was deleted meanwhile.
			return ignoreMissing(err)
		}
		if row.WatchAt == nil || row.WatchAt.After(now) {
			return nil
		}
		rule, err := ruleOf(row)
		if err != nil {
			return err
		}
		var watched []notify.Watched
		if rule.StaleAfter > 0 {
			pipelines, err := q.WatchedPipelines(ctx, db.WatchedPipelinesParams{Organization: r.Organization, Pipeline: row.Pipeline})
			if err != nil {
				return err
			}
			for _, p := range pipelines {
				watched = append(watched, notify.Watched{Pipeline: p.ID, PipelineName: p.Name, Since: p.Since.UTC()})
			}
		}
		if rule.NoProgressAfter > 0 {
			runs, err := q.WatchedRuns(ctx, db.WatchedRunsParams{Organization: r.Organization, Pipeline: row.Pipeline})
			if err != nil {
				return err
			}
			for _, u := range runs {
				w := notify.Watched{Run: u.Run, PipelineName: u.PipelineName, Since: u.Since.UTC()}
				if u.Pipeline != nil {
					w.Pipeline = *u.Pipeline
				}
				watched = append(watched, w)
			}
		}
		found, next := look(rule, watched)
		if err := deliver(ctx, tx, []notify.Rule{rule}, found...); err != nil {
			return err
		}
		if !next.IsZero() {
			tx.owe()
		}
		return q.SetWatch(ctx, db.SetWatchParams{Organization: r.Organization, ID: r.Rule, WatchAt: orNull(next)})
	})
}

// historyOf reads a row of the history.
func historyOf(row db.RunHistory) (*projection.Run, error) {
	r := &projection.Run{
		ID: row.Run, PipelineName: row.PipelineName, Route: row.RouteKey, Version: row.Version, Source: row.Source, Sink: row.Sink,
		CreatedAt: row.CreatedAt.UTC(), Folded: row.Folded, Muted: row.Muted, State: row.State, Resumable: row.Resumable,
		Error: row.Error, ErrorClass: row.ErrorClass, Hint: row.Hint,
		StartedAt: moment(row.StartedAt), EndedAt: moment(row.EndedAt), ProgressedAt: moment(row.ProgressedAt),
		Attempts: int(row.Attempts), Failures: int(row.Failures), Interruptions: int(row.Interruptions),
		Counts: projection.Counts{
			Read: row.RowsRead, Applied: row.RowsApplied, Superseded: row.RowsSuperseded, Skipped: row.RowsSkipped,
			SetAside: row.RowsSetAside, Bytes: row.Bytes,
		},
		PeakBytes: row.PeakBytes,
	}
	if row.Pipeline != nil {
		r.Pipeline = *row.Pipeline
	}
	if row.Schedule != nil {
		r.Schedule = *row.Schedule
	}
	var memo storedMemo
	if err := json.Unmarshal(row.Memo, &memo); err != nil {
		return nil, fmt.Errorf("read history of run %s: %w", row.Run, err)
	}
	r.Memo, r.Usage = memo.Memo, memo.Usage
	r.CPU = row.CpuMs
	return r, nil
}

// storedMemo is the memo with the usage, whose columns are those of run_costs.
type storedMemo struct {
	projection.Memo
	Usage projection.Usage `json:"usage,omitzero"`
}

func historyParams(organization uuid.UUID, r *projection.Run) (db.UpdateHistoryParams, error) {
	memo, err := json.Marshal(storedMemo{r.Memo, r.Usage})
	return db.UpdateHistoryParams{
		Organization: organization, Run: r.ID, Folded: r.Folded, State: r.State, Resumable: r.Resumable,
		Error: r.Error, ErrorClass: r.ErrorClass, Hint: r.Hint,
		StartedAt: orNull(r.StartedAt), EndedAt: orNull(r.EndedAt), ProgressedAt: orNull(r.ProgressedAt),
		Attempts: int32(r.Attempts), Failures: int32(r.Failures), Interruptions: int32(r.Interruptions),
		RowsRead: r.Read, RowsApplied: r.Applied, RowsSuperseded: r.Superseded, RowsSkipped: r.Skipped, RowsSetAside: r.SetAside,
		Bytes: r.Bytes, CpuMs: r.CPU, PeakBytes: r.PeakBytes, Memo: memo,
	}, err
}

func resourceOf(row db.RunResource) (*projection.Resource, error) {
	res := &projection.Resource{
		Name: row.Resource, State: row.State, Target: row.Target, Read: row.ReadMode, Write: row.WriteMode,
		Splits: int(row.Splits), SplitsDone: int(row.SplitsDone), Error: row.Error,
		Counts: projection.Counts{
			Read: row.RowsRead, Applied: row.RowsApplied, Superseded: row.RowsSuperseded, Skipped: row.RowsSkipped,
			SetAside: row.RowsSetAside, Bytes: row.Bytes,
		},
		StartedAt: moment(row.StartedAt), EndedAt: moment(row.EndedAt),
	}
	if err := json.Unmarshal(row.Counted, &res.Counted); err != nil {
		return nil, fmt.Errorf("read resource %q of run %s: %w", row.Resource, row.Run, err)
	}
	return res, nil
}

func resourceParams(organization, run uuid.UUID, r *projection.Resource) (db.UpsertResourceParams, error) {
	counted, err := json.Marshal(r.Counted)
	return db.UpsertResourceParams{
		Organization: organization, Run: run, Resource: r.Name, State: r.State, Target: r.Target, ReadMode: r.Read, WriteMode: r.Write,
		Splits: int32(r.Splits), SplitsDone: int32(r.SplitsDone),
		RowsRead: r.Counts.Read, RowsApplied: r.Applied, RowsSuperseded: r.Superseded, RowsSkipped: r.Skipped, RowsSetAside: r.SetAside,
		Bytes: r.Bytes, Error: r.Error, StartedAt: orNull(r.StartedAt), EndedAt: orNull(r.EndedAt), Counted: counted,
	}, err
}

// metricParams turns buckets into rows, in the order in which everybody locks them:
// that of their days, which the database adds to at the transaction's end, first.
func metricParams(organization uuid.UUID, buckets map[projection.Key]projection.Metrics) ([]db.AddMetricsParams, []db.AddDurationsParams) {
	var metrics []db.AddMetricsParams
	var durations []db.AddDurationsParams
	for k, m := range buckets {
		metrics = append(metrics, db.AddMetricsParams{
			Organization: organization, Hour: k.Hour, Pipeline: k.Pipeline, Source: k.Source, Sink: k.Sink, Resource: k.Resource, Status: k.Status,
			Runs: m.Runs, RowsRead: m.Read, RowsWritten: m.Written, RowsSetAside: m.SetAside, Bytes: m.Bytes,
			DurationMs: m.Millis, MinMs: m.MinMillis, MaxMs: m.MaxMillis, ComputeMs: m.Compute, MemoryMibMs: m.Memory, CpuMs: m.CPU,
			MovedBytes: m.Moved, PeakBytes: m.PeakBytes,
		})
		for class, n := range m.Durations {
			durations = append(durations, db.AddDurationsParams{
				Organization: organization, Hour: k.Hour, Pipeline: k.Pipeline, Source: k.Source, Sink: k.Sink, Resource: k.Resource, Status: k.Status,
				Class: int32(class), Endings: n,
			})
		}
	}
	slices.SortFunc(metrics, func(a, b db.AddMetricsParams) int {
		return cmp.Or(a.Hour.Truncate(day).Compare(b.Hour.Truncate(day)), bytes.Compare(a.Pipeline[:], b.Pipeline[:]), cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Status, b.Status), a.Hour.Compare(b.Hour))
	})
	slices.SortFunc(durations, func(a, b db.AddDurationsParams) int {
		return cmp.Or(a.Hour.Truncate(day).Compare(b.Hour.Truncate(day)), bytes.Compare(a.Pipeline[:], b.Pipeline[:]), cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Status, b.Status), cmp.Compare(a.Class, b.Class), a.Hour.Compare(b.Hour))
	})
	return metrics, durations
}
