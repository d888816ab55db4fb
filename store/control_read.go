package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/store/internal/db"
)

// Run implements [runs.Store].
func (d *DB) Run(ctx context.Context, organization, id uuid.UUID) (runs.Run, error) {
	var r runs.Run
	err := d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		var err error
		if r, err = loadRun(ctx, tx, id); err != nil {
			return err
		}
		t, err := tx.Q().RunTotals(ctx, id)
		if err != nil {
			return fmt.Errorf("add up run %s: %w", id, err)
		}
		r.Totals = runs.Totals{Read: t.Read, Written: t.Written, Bytes: t.Bytes}
		return nil
	})
	return r, err
}

// runPlace is a run's place in lists, the newest first.
type runPlace struct {
	At time.Time `json:"at"`
	ID uuid.UUID `json:"id"`
}

// Runs implements [runs.Store].
func (d *DB) Runs(ctx context.Context, organization uuid.UUID, f runs.Filter, p control.Page) (control.List[runs.Run], error) {
	place := runPlace{endOfTime, uuid.Max}
	if _, err := control.DecodeCursor("runs", p.After, &place); err != nil {
		return control.List[runs.Run]{}, err
	}
	states := make([]string, 0, len(f.States))
	for _, s := range f.States {
		if !slices.Contains(states, string(s)) {
			states = append(states, string(s))
		}
	}
	before := f.Before
	if before.IsZero() {
		before = endOfTime
	}
	var found []runs.Run
	err := d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		rows, err := listRuns(ctx, tx.Q(), f.Pipeline, states, db.ListControlRunsParams{
			CreatedFrom: f.From, CreatedBefore: before, BeforeAt: place.At, BeforeID: place.ID, Most: int32(p.Size()) + 1,
		})
		if err != nil {
			return fmt.Errorf("list runs: %w", err)
		}
		found = make([]runs.Run, len(rows))
		for i, row := range rows {
			if found[i], err = controlRun(row); err != nil {
				return err
			}
			found[i].Totals = runs.Totals{Read: row.RowsRead, Written: row.RowsWritten, Bytes: row.Bytes}
		}
		return nil
	})
	return control.PageOf("runs", p, found, func(r runs.Run) any { return runPlace{r.CreatedAt, r.ID} }), err
}

// listRuns uses the index of what is asked for: a name or id of a pipeline, states,
// or all.
func listRuns(ctx context.Context, q *db.Queries, pipeline string, states []string, p db.ListControlRunsParams) ([]db.ListControlRunsRow, error) {
	var out []db.ListControlRunsRow
	switch {
	case pipeline == "" && len(states) == 0:
		return q.ListControlRuns(ctx, p)
	case pipeline == "":
		rows, err := q.ListControlRunsOfStates(ctx, db.ListControlRunsOfStatesParams{
			States: states, CreatedFrom: p.CreatedFrom, CreatedBefore: p.CreatedBefore, BeforeAt: p.BeforeAt, BeforeID: p.BeforeID, Most: p.Most,
		})
		for _, r := range rows {
			out = append(out, db.ListControlRunsRow(r))
		}
		return out, err
	}
	if id, err := uuid.Parse(pipeline); err == nil {
		rows, err := q.ListControlRunsOfPipeline(ctx, db.ListControlRunsOfPipelineParams{
			Pipeline: &id, States: states, CreatedFrom: p.CreatedFrom, CreatedBefore: p.CreatedBefore, BeforeAt: p.BeforeAt, BeforeID: p.BeforeID, Most: p.Most,
		})
		for _, r := range rows {
			out = append(out, db.ListControlRunsRow(r))
		}
		return out, err
	}
	rows, err := q.ListControlRunsOfTitle(ctx, db.ListControlRunsOfTitleParams{
		Title: pipeline, States: states, CreatedFrom: p.CreatedFrom, CreatedBefore: p.CreatedBefore, BeforeAt: p.BeforeAt, BeforeID: p.BeforeID, Most: p.Most,
	})
	for _, r := range rows {
		out = append(out, db.ListControlRunsRow(r))
	}
	return out, err
}

// RunFacts implements [runs.Store].
func (d *DB) RunFacts(ctx context.Context, organization, id uuid.UUID, after int64, limit int) ([]events.Fact, error) {
	var facts []events.Fact
	err := d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListFacts(ctx, db.ListFactsParams{Run: id, Number: after, Limit: int32(limit)})
		if err != nil {
			return fmt.Errorf("read facts of run %s: %w", id, err)
		}
		facts = make([]events.Fact, len(rows))
		for i, r := range rows {
			facts[i] = factOf(id, r)
		}
		return nil
	})
	return facts, err
}

// RunResources implements [runs.Store].
func (d *DB) RunResources(ctx context.Context, organization, id uuid.UUID, p control.Page) (control.List[runs.Resource], error) {
	after := int32(-1)
	if _, err := control.DecodeCursor("run_resources", p.After, &after); err != nil {
		return control.List[runs.Resource]{}, err
	}
	var page control.List[runs.Resource]
	err := d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		r, err := loadRun(ctx, tx, id)
		if err != nil {
			return err
		}
		q := tx.Q()
		rows, err := q.RunResources(ctx, db.RunResourcesParams{Run: id, After: after, Most: int32(p.Size()) + 1})
		if err != nil {
			return fmt.Errorf("list resources of run %s: %w", id, err)
		}
		part := control.PageOf("run_resources", p, rows, func(r db.RunResourcesRow) any { return r.Seq })
		page = control.List[runs.Resource]{Items: make([]runs.Resource, len(part.Items)), Next: part.Next}
		at := map[string]*runs.Resource{}
		names := make([]string, len(part.Items))
		for i, row := range part.Items {
			var plan engine.ResourcePlan
			if err := json.Unmarshal(row.Plan, &plan); err != nil {
				return fmt.Errorf("decode the plan of %s: %w", row.Name, err)
			}
			x := &page.Items[i]
			*x = runs.Resource{Name: row.Name, Read: plan.Read, Write: plan.Write}
			if plan.Target != nil {
				x.Target = plan.Target.Name
			}
			at[row.Name], names[i] = x, row.Name
		}
		splits, err := q.SplitsOfResources(ctx, db.SplitsOfResourcesParams{Run: id, Names: names})
		if err != nil {
			return fmt.Errorf("list splits of run %s: %w", id, err)
		}
		return addSplits(r, at, splits)
	})
	return page, err
}

// addSplits adds up what the splits of each resource say of it.
func addSplits(r runs.Run, at map[string]*runs.Resource, splits []db.SplitsOfResourcesRow) error {
	begun, published := map[string]bool{}, map[string]bool{}
	for _, s := range splits {
		x := at[s.Resource]
		if x == nil {
			continue
		}
		begun[s.Resource] = begun[s.Resource] || s.Claim > 0
		if s.Kind == string(engine.SplitPublish) {
			published[s.Resource] = s.Done
			continue
		}
		x.Splits++
		if s.Done {
			x.SplitsDone++
		}
		if len(s.Totals) > 0 {
			var t engine.Totals
			if err := json.Unmarshal(s.Totals, &t); err != nil {
				return fmt.Errorf("decode the sums of a split of %s: %w", s.Resource, err)
			}
			x.Totals.Add(t)
		}
	}
	for name, x := range at {
		switch {
		case published[name]:
			x.State = "published"
		case !r.Open():
			x.State = "incomplete"
		case x.Splits == x.SplitsDone && begun[name]:
			x.State = "publishing"
		case begun[name]:
			x.State = "reading"
		default:
			x.State = "planned"
		}
	}
	return nil
}
