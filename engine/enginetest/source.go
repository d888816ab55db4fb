package enginetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

// SourceCase is a source under test.
type SourceCase struct {
	Spec engine.Spec
	// Open makes a new session on the same data.
	Open func(t *testing.T) engine.SourceSession
	// Resources are what the suite reads: together they use every read mode and
	// consistency that the spec advertises, and one of them is empty.
	Resources []SourceResource
	// Decode turns wire batches into canonical rows; needed if the spec has wire formats.
	Decode Decoder
	// BatchBytes is small enough for some batches a resource; 0 means 256.
	BatchBytes int64
}

// SourceResource is one resource of a source under test.
type SourceResource struct {
	Name string
	// Plan is how it is planned; Resource is filled in.
	Plan engine.PlanRequest
	// Rows are its rows in canonical encoding, in the schema's order; nil: what a
	// first whole read brings is taken as right. Empty: it has none.
	Rows  [][]byte
	Empty bool
	// Skipped is the number of rows that a policy leaves out (NULL cursors).
	Skipped int
}

// RunSource runs the conformance suite of sources.
func RunSource(t *testing.T, c SourceCase) {
	t.Helper()
	if c.BatchBytes == 0 {
		c.BatchBytes = 256
	}
	t.Run("spec is honest", func(t *testing.T) { sourceSpec(t, c) })
	t.Run("an unknown resource is a permanent error", func(t *testing.T) {
		s := c.open(t)
		_, err := s.Plan(t.Context(), engine.PlanRequest{Selection: engine.Selection{Resource: "no.such_resource"}, Read: engine.ReadFull, Slots: 1, HolderLives: true})
		require.Equal(t, engine.Permanent, engine.ClassOf(err), "%v", err)
	})
	for _, r := range c.Resources {
		t.Run(r.Name+" "+string(r.Plan.Read)+" "+string(r.Plan.Consistency), func(t *testing.T) {
			t.Run("whole, in every form", func(t *testing.T) { sourceWhole(t, c, r) })
			t.Run("resumed at every mark", func(t *testing.T) { sourceResumed(t, c, r) })
			t.Run("all splits at once", func(t *testing.T) { sourceParallel(t, c, r) })
			t.Run("back-pressure", func(t *testing.T) { sourceBudget(t, c, r) })
			t.Run("canceled", func(t *testing.T) { sourceCanceled(t, c, r) })
			t.Run("a snapshot dies with its session", func(t *testing.T) { sourceSnapshot(t, c, r) })
		})
	}
}

func (c SourceCase) open(t *testing.T) engine.SourceSession {
	t.Helper()
	s := c.Open(t)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}

func sourceSpec(t *testing.T, c SourceCase) {
	t.Helper()
	var reads []engine.ReadMode
	var consistencies []engine.Consistency
	empty := false
	s := c.open(t)
	require.NotEmpty(t, s.Identity())
	require.Equal(t, s.Identity(), c.open(t).Identity(), "the identity is stable")
	for _, r := range c.Resources {
		p := c.plan(t, s, r)
		reads = append(reads, r.Plan.Read)
		consistencies = append(consistencies, p.Consistency)
		empty = empty || r.Empty
		for _, w := range p.Wire {
			require.Contains(t, c.Spec.Wire, w, "only advertised wire formats are planned")
		}
	}
	for _, m := range []engine.ReadMode{engine.ReadFull, engine.ReadIncremental, engine.ReadCDC} {
		if slices.Contains(c.Spec.Reads, m) && m == engine.ReadCDC {
			require.Implements(t, (*engine.Streamer)(nil), s, "changes are exercised by RunStreamer")
			continue
		}
		if slices.Contains(c.Spec.Reads, m) {
			require.Contains(t, reads, m, "an advertised read mode is exercised")
			continue
		}
		_, err := s.Plan(t.Context(), engine.PlanRequest{Selection: engine.Selection{Resource: c.Resources[0].Name}, Read: m, Slots: 1, HolderLives: true})
		require.Equal(t, engine.Permanent, engine.ClassOf(err), "read mode %s is not advertised: %v", m, err)
	}
	for _, k := range c.Spec.Consistencies {
		require.Contains(t, consistencies, k, "an advertised consistency is exercised")
	}
	require.True(t, empty, "one of the resources is empty")
	all, err := s.Discover(t.Context(), nil)
	require.NoError(t, err)
	for _, r := range c.Resources {
		i := slices.IndexFunc(all, func(d engine.Resource) bool { return d.Name == r.Name })
		require.GreaterOrEqual(t, i, 0, "%s is discovered", r.Name)
		require.NoError(t, all[i].Schema.Validate())
		one, err := s.Discover(t.Context(), []string{r.Name})
		require.NoError(t, err)
		require.Len(t, one, 1)
	}
}

// plan plans as the engine does.
func (c SourceCase) plan(t *testing.T, s engine.SourceSession, r SourceResource) *engine.SourcePlan {
	t.Helper()
	req := r.Plan
	req.Resource, req.HolderLives = r.Name, true
	if req.Write == "" {
		req.Write = engine.WriteReplace
	}
	if req.Slots == 0 {
		req.Slots = 2
	}
	p, err := s.Plan(t.Context(), req)
	require.NoError(t, err)
	require.NoError(t, p.Resource.Schema.Validate())
	require.NotEmpty(t, p.Splits, "an empty resource has a split too: it must be published")
	ids := map[string]bool{}
	for _, sp := range p.Splits {
		require.False(t, ids[sp.ID], "split ids are unique")
		ids[sp.ID] = true
	}
	return p
}

func (c SourceCase) collector(p *engine.SourcePlan, wire engine.WireFormat) *collector {
	return &collector{schema: &p.Resource.Schema, wire: wire, decode: c.Decode}
}

func (c SourceCase) request(r SourceResource, p *engine.SourcePlan, i int, wire engine.WireFormat, from engine.Position) engine.ReadRequest {
	sel := r.Plan.Selection
	sel.Resource = r.Name
	return engine.ReadRequest{Split: p.Splits[i], Plan: p, Selection: sel, From: from, Wire: wire, BatchBytes: c.BatchBytes}
}

// whole reads every split to its end.
func (c SourceCase) whole(t *testing.T, s engine.SourceSession, r SourceResource, p *engine.SourcePlan, wire engine.WireFormat) ([][]byte, int) {
	t.Helper()
	var rows [][]byte
	skipped := 0
	for i := range p.Splits {
		w := c.collector(p, wire)
		res, err := s.Read(t.Context(), c.request(r, p, i, wire, nil), w)
		require.NoError(t, err)
		require.True(t, res.Done)
		w.done()
		require.Zero(t, w.held, "what is reserved is written or given back")
		rows = append(rows, w.rows...)
		skipped += w.skipped
	}
	return rows, skipped
}

// right are the rows that a resource has.
func (c SourceCase) right(t *testing.T, s engine.SourceSession, r SourceResource, p *engine.SourcePlan) [][]byte {
	t.Helper()
	if r.Rows != nil || r.Empty {
		return r.Rows
	}
	rows, _ := c.whole(t, s, r, p, "")
	return rows
}

func sourceWhole(t *testing.T, c SourceCase, r SourceResource) {
	t.Helper()
	s := c.open(t)
	p := c.plan(t, s, r)
	want := c.right(t, s, r, p)
	for _, wire := range append([]engine.WireFormat{""}, p.Wire...) {
		got, skipped := c.whole(t, s, r, p, wire)
		RequireSameRows(t, want, got, "read as "+string(wire))
		require.Equal(t, r.Skipped, skipped, "rows skipped")
	}
}

func sourceResumed(t *testing.T, c SourceCase, r SourceResource) {
	t.Helper()
	s := c.open(t)
	p := c.plan(t, s, r)
	want := c.right(t, s, r, p)
	wires := append([]engine.WireFormat{""}, p.Wire...)
	for stop := 1; stop <= 8; stop++ {
		var got [][]byte
		skipped := 0
		for i := range p.Splits {
			var from engine.Position
			for n := 0; ; n++ {
				require.Less(t, n, 10_000, "the split ends")
				// Positions of one form go on in another.
				w := c.collector(p, wires[n%len(wires)])
				w.stopAt = stop
				session := s
				if p.Consistency != engine.ConsistencySnapshot && n < 3 {
					session = c.open(t)
				}
				res, err := session.Read(t.Context(), c.request(r, p, i, w.wire, from), w)
				require.NoError(t, err)
				if res.Done {
					w.done()
				} else {
					require.True(t, w.stopped, "a read ends early only when it is told to")
					w.late.Wait()
				}
				require.Zero(t, w.held, "what is reserved is written or given back")
				got = append(got, w.rows...)
				skipped += w.skipped
				if res.Done {
					break
				}
				from = w.marks[len(w.marks)-1]
			}
		}
		RequireSameRows(t, want, got, "resumed at every mark")
		require.Equal(t, r.Skipped, skipped, "rows skipped")
	}
}

func sourceParallel(t *testing.T, c SourceCase, r SourceResource) {
	t.Helper()
	s := c.open(t)
	p := c.plan(t, s, r)
	want := c.right(t, s, r, p)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var got [][]byte
	var errs error
	slots := make(chan struct{}, 2)
	for i := range p.Splits {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			w := c.collector(p, "")
			_, err := s.Read(t.Context(), c.request(r, p, i, "", nil), w)
			w.done()
			mu.Lock()
			defer mu.Unlock()
			got, errs = append(got, w.rows...), errors.Join(errs, err)
		})
	}
	wg.Wait()
	require.NoError(t, errs)
	RequireSameRows(t, want, got, "read in parallel")
}

func sourceBudget(t *testing.T, c SourceCase, r SourceResource) {
	t.Helper()
	s := c.open(t)
	p := c.plan(t, s, r)
	want := c.right(t, s, r, p)
	var got [][]byte
	for i := range p.Splits {
		w := c.collector(p, "")
		w.budget, w.slow = 4*c.BatchBytes, 50*time.Microsecond
		_, err := s.Read(t.Context(), c.request(r, p, i, "", nil), w)
		require.NoError(t, err)
		w.done()
		require.LessOrEqual(t, w.peak, w.budget)
		require.Zero(t, w.held, "what is reserved is written or given back")
		got = append(got, w.rows...)
	}
	RequireSameRows(t, want, got, "read under back-pressure")
}

func sourceCanceled(t *testing.T, c SourceCase, r SourceResource) {
	t.Helper()
	if r.Empty {
		// There is nothing in which a read could be interrupted.
		return
	}
	s := c.open(t)
	p := c.plan(t, s, r)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wrote := false
	for i := 0; i < len(p.Splits) && !wrote; i++ {
		w := c.collector(p, "")
		w.wrote = func() { wrote = true; cancel() }
		began := time.Now()
		res, err := s.Read(ctx, c.request(r, p, i, "", nil), w)
		w.late.Wait()
		require.Zero(t, w.held, "what is reserved is given back")
		require.Less(t, time.Since(began), 30*time.Second)
		if err != nil {
			require.Equal(t, engine.Retryable, engine.ClassOf(err), "%v", err)
			require.True(t, wrote)
		} else {
			// The batch that was written was the split's last.
			require.True(t, res.Done)
		}
	}
	// The session is as good as before.
	RequireSameRows(t, c.right(t, s, r, p), first(c.whole(t, s, r, p, "")), "read after a canceled read")
}

func first[A, B any](a A, _ B) A { return a }

func sourceSnapshot(t *testing.T, c SourceCase, r SourceResource) {
	t.Helper()
	holder := c.Open(t)
	p := c.plan(t, holder, r)
	if p.Consistency != engine.ConsistencySnapshot {
		require.NoError(t, holder.Close(context.Background()))
		return
	}
	require.NoError(t, holder.Close(context.Background()))
	_, err := c.open(t).Read(t.Context(), c.request(r, p, 0, "", nil), c.collector(p, ""))
	require.ErrorIs(t, err, engine.ErrSnapshotLost)
}
