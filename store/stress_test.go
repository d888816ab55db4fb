package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// TestStress lets 64 workers do everything at once to a few runs: no deadlock
// happens, let alone reaches a caller, and facts have no gaps. TRANSHIP_STRESS
// says for how long (30s); 2 s by default.
func TestStress(t *testing.T) {
	t.Parallel()
	length := 2 * time.Second
	if s := os.Getenv("TRANSHIP_STRESS"); s != "" {
		var err error
		length, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	url := pgtest.NewDatabase(t, pgtest.Shared(t))
	d, err := Open(t.Context(), Config{URL: url, MaxConns: 64, Wait: time.Minute})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	require.NoError(t, d.Migrate(t.Context()))
	st := &stress{t: t, d: d}
	for i := range 2 {
		st.orgs = append(st.orgs, newOrganization(t, d, fmt.Sprint("org-", i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() { st.work(ctx) })
	}
	wg.Wait()
	conn := superuser(t, d)
	var deadlocks, gaps, facts int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&deadlocks))
	require.Zero(t, deadlocks, "the order of locks is kept")
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT coalesce(sum(n), 0) FROM (SELECT count(*) AS n FROM facts) x`).Scan(&facts))
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM runs r LEFT JOIN LATERAL
		(SELECT count(*) AS n, max(number) AS last FROM facts f WHERE f.organization = r.organization AND f.run = r.id) f ON true
		WHERE f.n <> r.last_fact OR coalesce(f.last, 0) <> r.last_fact`).Scan(&gaps))
	require.Zero(t, gaps)
	t.Logf("%d operations, of which %d were refused as they must be; %d facts", st.done.Load(), st.refused.Load(), facts)
	require.Positive(t, facts)
}

type stress struct {
	t             *testing.T
	d             *DB
	orgs          []uuid.UUID
	done, refused atomic.Int64
}

// hand is what one worker has in its hands.
type hand struct {
	s     *State
	route engine.Route
	run   uuid.UUID
	lease engine.Lease
	split *engine.ClaimedSplit
	gen   int
}

func (st *stress) work(ctx context.Context) {
	h := &hand{}
	for ctx.Err() == nil {
		err := st.step(ctx, h)
		st.done.Add(1)
		var away *control.UnavailableError
		switch {
		case err == nil, ctx.Err() != nil:
		case code(err) == "40P01", code(err) == "40001", errors.As(err, &away), code(err) != "" && code(err) != "23505":
			st.t.Errorf("an error of the database reached a caller: %v", err)
			return
		default:
			st.refused.Add(1)
		}
	}
}

func (st *stress) step(ctx context.Context, h *hand) error {
	if h.s == nil || rand.IntN(20) == 0 {
		h.s = st.d.State(st.orgs[rand.IntN(len(st.orgs))])
		h.route = engine.Route{Pipeline: fmt.Sprint("p", rand.IntN(2)), Source: "s", Sink: "d"}
		h.lease, h.split = engine.Lease{}, nil
		return h.start(ctx, rand.IntN(10) == 0)
	}
	f := h.lease.Fence
	switch rand.IntN(16) {
	case 0:
		return h.start(ctx, rand.IntN(4) == 0)
	case 1, 2:
		l, err := h.s.Acquire(ctx, h.run, rand.IntN(4), "w", time.Duration(rand.IntN(300))*time.Millisecond)
		if err == nil {
			h.lease, h.split = l, nil
			return h.s.SavePlan(ctx, l.Fence, &engine.RunPlan{Resources: []*engine.ResourcePlan{resourcePlan("b", engine.WriteAppend, 4), resourcePlan("a", engine.WriteUpsert, 4)}}, h.facts(1))
		}
		return err
	case 3, 4:
		_, err := h.s.Renew(ctx, h.lease, 200*time.Millisecond)
		return err
	case 5, 6:
		c, err := h.s.ClaimSplit(ctx, f, nil)
		if c != nil {
			h.split = c
		}
		return err
	case 7, 8, 9:
		return h.commit(ctx)
	case 10:
		if h.split == nil {
			return nil
		}
		return h.s.ReturnSplit(ctx, f, h.split.ID, h.split.Claim)
	case 11:
		return h.s.AppendFacts(ctx, f, h.facts(3))
	case 12:
		switch rand.IntN(4) {
		case 0:
			return h.s.EndAttempt(ctx, h.lease, h.facts(1))
		case 1:
			state := []engine.RunState{engine.StateFailed, engine.StatePaused, engine.StateCompleted}[rand.IntN(3)]
			return h.s.FinishRun(ctx, f, engine.RunEnd{State: state, Resumable: true, Facts: h.facts(1)})
		case 2:
			h.gen++
			again := resourcePlan("a", engine.WriteUpsert, 3)
			again.Generation = h.gen
			return h.s.ReplaceResource(ctx, f, again, h.facts(1))
		}
		return h.s.SetDesired(ctx, h.run, []engine.Desired{engine.DesiredRun, engine.DesiredPause, engine.DesiredCancel}[rand.IntN(3)])
	case 13:
		if rand.IntN(2) == 0 {
			_, err := h.s.RaiseOrdinal(ctx, h.run, int64(rand.IntN(1000)))
			return err
		}
		return h.s.ResetResource(ctx, h.route, "a")
	case 14:
		return st.relay(ctx)
	}
	return st.others(ctx, h)
}

func (h *hand) start(ctx context.Context, restart bool) error {
	run, _, err := h.s.StartRun(ctx, engine.StartRequest{Route: h.route, Version: fmt.Sprint("v", rand.IntN(5)/4), Restart: restart})
	if err == nil {
		h.run = run.ID
		return nil
	}
	// Somebody else's run, to disturb it.
	runs, listErr := h.s.ListRuns(ctx, h.route.Pipeline, 1)
	if listErr == nil && len(runs) == 1 {
		h.run = runs[0].ID
	}
	return errors.Join(err, listErr)
}

func (h *hand) facts(n int) (all []events.Fact) {
	for range n {
		f, err := events.New(h.run, time.Now(), events.Retry{})
		if err == nil {
			all = append(all, f)
		}
	}
	return all
}

func (h *hand) commit(ctx context.Context) error {
	c := h.split
	if c == nil {
		return nil
	}
	p := engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: c.Epoch + 1, Done: rand.IntN(3) == 0, Position: json.RawMessage(`{"k":1}`), Facts: h.facts(2),
		Artifacts: []engine.Artifact{{Name: uuid.NewString()}}, Seen: []engine.RowID{{1}}}
	if c.Kind == engine.SplitPublish {
		return h.s.CommitPublish(ctx, h.lease.Fence, p, json.RawMessage(`1`), nil)
	}
	return h.s.Commit(ctx, h.lease.Fence, p)
}

// relay takes waiting facts as the relay does.
func (st *stress) relay(ctx context.Context) error {
	return st.d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM fact_relays f USING (SELECT organization, run, last FROM fact_relays ORDER BY created_at LIMIT 20 FOR UPDATE SKIP LOCKED) d
			WHERE f.organization = d.organization AND f.run = d.run AND f.last = d.last`)
		return err
	})
}

// others does what the control plane does to runs of which it knows nothing.
func (st *stress) others(ctx context.Context, h *hand) error {
	switch rand.IntN(3) {
	case 0:
		_, err := h.s.Splits(ctx, h.run)
		return err
	case 1:
		return h.s.AdoptRoute(ctx, h.route, "adopted", engine.Adoption{Installation: uuid.NewString(), Ordinal: 3})
	}
	// The takeover of lost leases, as the sweep does it.
	return st.d.Tx(ctx, h.s.org, func(ctx context.Context, tx Tx) error {
		t := &stateTx{Tx: tx, ctx: ctx, q: tx.Q()}
		if _, err := t.lockRun(h.run); err != nil {
			return err
		}
		return t.voidLeases(h.run)
	})
}
