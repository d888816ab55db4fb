// Package statetest is the suite that every [engine.State] passes: what the
// attempt loop relies on when it claims, commits, hands over and starts again.
package statetest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
	"github.com/tranship-io/tranship/events"
)

// Run runs the suite; open makes an empty State for each test and cleans it up
// with t. A State whose clock is not the wall clock has a method
// Advance(time.Duration), which the suite calls instead of sleeping.
func Run(t *testing.T, open func(t *testing.T) engine.State) {
	t.Helper()
	for _, group := range []struct {
		name  string
		tests map[string]func(*world)
	}{
		{"runs", runTests}, {"facts", factTests}, {"plans", planTests}, {"claims", claimTests},
		{"progress", progressTests}, {"leases", leaseTests}, {"routes", routeTests},
		{"adoption", adoptionTests}, {"parallel", parallelTests},
	} {
		for name, test := range group.tests {
			t.Run(group.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(&world{t: t, ctx: t.Context(), State: open(t)})
			})
		}
	}
}

// long is a lease that does not end within a test, short one that ends at once.
const (
	long  = time.Hour
	short = time.Millisecond
)

// world is a State under test with the ways in which tests use it.
type world struct {
	engine.State
	t   *testing.T
	ctx context.Context
}

// advance lets leases of the given length run out.
func (w *world) advance(d time.Duration) {
	d += 5 * time.Millisecond
	if c, ok := w.State.(interface{ Advance(time.Duration) }); ok {
		c.Advance(d)
		return
	}
	time.Sleep(d)
}

var route = engine.Route{Pipeline: "shop", Source: "postgres://src/shop", Sink: "postgres://dst/shop"}

func (w *world) start(t *testing.T, version string) engine.Run {
	t.Helper()
	run, _, err := w.StartRun(w.ctx, engine.StartRequest{Route: route, Version: version})
	require.NoError(t, err)
	return run
}

func (w *world) acquire(t *testing.T, run engine.Run, slot int) engine.Lease {
	t.Helper()
	l, err := w.Acquire(w.ctx, run.ID, slot, fmt.Sprintf("worker %d", slot), long)
	require.NoError(t, err)
	return l
}

// begin starts a run with a plan; its worker lives in slot 0.
func (w *world) begin(t *testing.T, resources ...*engine.ResourcePlan) (engine.Run, engine.Lease) {
	t.Helper()
	run := w.start(t, "v1")
	l := w.acquire(t, run, 0)
	require.NoError(t, w.SavePlan(w.ctx, l.Fence, &engine.RunPlan{Resources: resources}, nil))
	return run, l
}

func (w *world) claim(t *testing.T, l engine.Lease, exclude ...string) *engine.ClaimedSplit {
	t.Helper()
	c, err := w.ClaimSplit(w.ctx, l.Fence, exclude)
	require.NoError(t, err)
	require.NotNil(t, c, "a split to claim")
	return c
}

// finishSplit commits a claimed split as done.
func (w *world) finishSplit(t *testing.T, l engine.Lease, c *engine.ClaimedSplit) {
	t.Helper()
	p := engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: c.Epoch + 1, Done: true}
	if c.Kind == engine.SplitPublish {
		require.NoError(t, w.CommitPublish(w.ctx, l.Fence, p, nil, nil))
		return
	}
	require.NoError(t, w.Commit(w.ctx, l.Fence, p))
}

// workAll claims and finishes until nothing is left.
func (w *world) workAll(t *testing.T, l engine.Lease) (ids []string) {
	t.Helper()
	for {
		c, err := w.ClaimSplit(w.ctx, l.Fence, nil)
		if err != nil {
			require.ErrorIs(t, err, engine.ErrSplitDone)
			return ids
		}
		require.NotNil(t, c)
		w.finishSplit(t, l, c)
		ids = append(ids, c.ID)
	}
}

func (w *world) finish(t *testing.T, l engine.Lease, state engine.RunState, resumable bool) {
	t.Helper()
	require.NoError(t, w.FinishRun(w.ctx, l.Fence, engine.RunEnd{State: state, Resumable: resumable}))
	require.NoError(t, w.EndAttempt(w.ctx, l, nil))
}

func (w *world) facts(t *testing.T, run uuid.UUID) []events.Fact {
	t.Helper()
	fs, err := w.Facts(w.ctx, run, 0, 0)
	require.NoError(t, err)
	for i, f := range fs {
		require.EqualValues(t, i+1, f.Number, "facts are numbered without gaps")
	}
	return fs
}

func (w *world) split(t *testing.T, run uuid.UUID, id string) engine.SplitStatus {
	t.Helper()
	all, err := w.Splits(w.ctx, run)
	require.NoError(t, err)
	for _, s := range all {
		if s.ID == id {
			return s
		}
	}
	require.Fail(t, "no such split", id)
	return engine.SplitStatus{}
}

// whole is everything that the State tells of a run, to see that nothing changed.
func (w *world) whole(t *testing.T, run uuid.UUID) string {
	t.Helper()
	var parts []any
	r, err := w.GetRun(w.ctx, run)
	require.NoError(t, err)
	splits, err := w.Splits(w.ctx, run)
	require.NoError(t, err)
	plan, err := w.LoadPlan(w.ctx, run)
	require.NoError(t, err)
	parts = append(parts, r, splits, plan, w.facts(t, run))
	if plan != nil {
		for _, rp := range plan.Resources {
			name := rp.Selection.Resource
			as, err := w.Artifacts(w.ctx, run, name)
			require.NoError(t, err)
			seen, err := w.SeenRows(w.ctx, run, name)
			require.NoError(t, err)
			cursor, err := w.Cursor(w.ctx, r.Route, name)
			require.NoError(t, err)
			parts = append(parts, as, seen, cursor)
		}
	}
	b, err := json.MarshalIndent(parts, "", " ")
	require.NoError(t, err)
	return string(b)
}

// unchanged runs do and proves that the State tells the same of the run as before.
func (w *world) unchanged(t *testing.T, run uuid.UUID, do func()) {
	t.Helper()
	before := w.whole(t, run)
	do()
	require.Equal(t, before, w.whole(t, run), "nothing is written")
}

// resource makes a plan of a resource with n read splits.
func resource(name string, n int) *engine.ResourcePlan {
	sch := schema.Schema{Key: []string{"id"}, Fields: []schema.Field{{Name: "id", Type: schema.Type{Kind: schema.Int64}}}}
	src := &engine.SourcePlan{
		Resource:    engine.Resource{Name: name, Path: []string{"public", name}, Kind: "table", Schema: sch, Rows: -1, Bytes: -1},
		Consistency: engine.ConsistencyChunked,
		NextCursor:  json.RawMessage(`{"id":"9007199254740993"}`),
	}
	for i := range n {
		src.Splits = append(src.Splits, engine.Split{ID: fmt.Sprintf("%s/%d", name, i), Resource: name,
			Descriptor: json.RawMessage(fmt.Sprintf(`{"from":%d}`, i)), Rows: 10, Bytes: 100})
	}
	return &engine.ResourcePlan{
		Selection: engine.Selection{Resource: name, Key: []string{"id"}},
		Read:      engine.ReadFull, Write: engine.WriteReplace, Source: src,
		Target: &engine.Target{Route: route, Resource: name, Schema: sch, Name: name, Staged: true},
	}
}

func fact(t *testing.T, run uuid.UUID, p events.Payload) events.Fact {
	t.Helper()
	f, err := events.New(run, time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC), p)
	require.NoError(t, err)
	return f
}

func totals(rows int64) engine.Totals {
	var d integrity.Digest
	for i := range rows {
		d.AddRow([]byte{byte(i)})
	}
	return engine.Totals{Read: rows, Applied: rows - 1, Skipped: 1, Bytes: rows * 100, Digest: d,
		Policies: []engine.PolicyCount{{Column: "id", Policy: engine.PolicyClamp, Reason: "too large", Count: 2}}}
}

// requireStale wants the error of an overtaken number.
func requireStale(t *testing.T, err error, what string) {
	t.Helper()
	var stale *engine.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, what, stale.What)
}

func requireClass(t *testing.T, err error, c engine.Class) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, c, engine.ClassOf(err), err.Error())
}
