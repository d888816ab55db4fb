package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/internal/pgtest"
	"github.com/tranship-io/tranship/store"
)

// controlPlane measures the control plane's store on a server that flushes to
// disk: commits and heartbeats of one worker, and intake of runs.
func controlPlane(ctx context.Context) error {
	server, err := pgtest.Start(ctx, pgtest.Config{Params: map[string]string{"fsync": "on", "wal_level": "replica"}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	db, err := store.Open(ctx, store.Config{URL: server.URL(""), MaxConns: 16})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.Migrate(ctx); err != nil {
		return err
	}
	organization, err := newOrganization(ctx, db)
	if err != nil {
		return err
	}
	fmt.Printf("control plane on PostgreSQL %s, fsync on, %d processors, load %s\n", server.Version(), runtime.NumCPU(), load())
	flush, err := flushTime(server.Dir())
	if err != nil {
		return err
	}
	fmt.Printf("  one write and fsync of 8 KiB on that disk: %s\n", flush)
	if err := worker(ctx, db, organization); err != nil {
		return err
	}
	return intake(ctx, db, organization)
}

// worker measures what one worker does again and again.
func worker(ctx context.Context, db *store.DB, organization uuid.UUID) error {
	s := db.State(organization)
	run, _, err := s.StartRun(ctx, engine.StartRequest{Route: engine.Route{Pipeline: "bench", Source: "s", Sink: "d"}, Version: "v"})
	if err != nil {
		return err
	}
	lease, err := s.Acquire(ctx, run.ID, 0, "bench", time.Hour)
	if err != nil {
		return err
	}
	plan := &engine.RunPlan{Resources: []*engine.ResourcePlan{{Selection: engine.Selection{Resource: "a"}, Write: engine.WriteAppend,
		Source: &engine.SourcePlan{Splits: []engine.Split{{ID: "a/0", Resource: "a"}}}, Target: &engine.Target{Resource: "a"}}}}
	if err := s.SavePlan(ctx, lease.Fence, plan, nil); err != nil {
		return err
	}
	c, err := s.ClaimSplit(ctx, lease.Fence, nil)
	if err != nil {
		return err
	}
	const n = 1000
	epoch := int64(0)
	commits, err := times(n, func() error {
		epoch++
		p := engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: epoch, Position: json.RawMessage(`{"key":[123456789]}`), Totals: engine.Totals{Read: epoch * 1000, Applied: epoch * 1000}}
		for range 2 {
			f, err := events.New(run.ID, time.Now(), events.EpochCommitted{Split: c.ID, Epoch: epoch})
			if err != nil {
				return err
			}
			p.Facts = append(p.Facts, f)
		}
		return s.Commit(ctx, lease.Fence, p)
	})
	if err != nil {
		return err
	}
	show("a split's position, sums and 2 facts, committed", commits)
	renewals, err := times(n, func() error {
		_, err := s.Renew(ctx, lease, time.Minute)
		return err
	})
	if err != nil {
		return err
	}
	show("a heartbeat (one round trip)", renewals)
	return nil
}

// intake starts runs from 16 callers at once, a pipeline each so that none is in
// another's way.
func intake(ctx context.Context, db *store.DB, organization uuid.UUID) error {
	const total = 2000
	a := control.System(organization)
	drafts := make([]runs.Draft, total)
	for i := range drafts {
		id, err := newPipeline(ctx, db, organization, fmt.Sprint("p", i))
		if err != nil {
			return err
		}
		route := runs.Route{Key: "a->b", Name: fmt.Sprint("p", i), Hash: "h"}
		drafts[i] = runs.Draft{ID: uuid.Must(uuid.NewV7()), Route: route,
			Compiled: runs.Compiled{ID: id, Name: fmt.Sprint("p", i), Number: 1, Routes: []runs.Route{route}}}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	began := time.Now()
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < total; i = next.Add(1) - 1 {
				key := control.WithIdempotency(ctx, control.Idempotency{Key: drafts[i].ID.String(), Hash: []byte("h")})
				if _, err := db.InsertRuns(key, a, drafts[i:i+1], false); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	select {
	case err := <-errs:
		return err
	default:
	}
	fmt.Printf("  intake with idempotency keys, 16 callers: %.0f runs/s\n", total/took.Seconds())
	return nil
}

func newOrganization(ctx context.Context, db *store.DB) (uuid.UUID, error) {
	id := uuid.Must(uuid.NewV7())
	return id, db.Tx(ctx, id, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO organizations (id, key, name) VALUES ($1, 'bench', 'bench')`, id)
		return err
	})
}

func newPipeline(ctx context.Context, db *store.DB, organization uuid.UUID, name string) (uuid.UUID, error) {
	id := uuid.Must(uuid.NewV7())
	return id, db.Tx(ctx, organization, func(ctx context.Context, tx store.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO pipelines (organization, id, name, current) VALUES ($1, $2, $3, 1)`, organization, id, name); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO pipeline_versions (organization, pipeline, number, hash, graph, created_by) VALUES ($1, $2, 1, 'h', '{}', '')`, organization, id)
		return err
	})
}

// load is the machine's, which figures are worth nothing without.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

// times runs do n times and returns how long each took, sorted, after a tenth to
// warm up.
func times(n int, do func() error) ([]time.Duration, error) {
	var all []time.Duration
	for i := range n + n/10 {
		began := time.Now()
		if err := do(); err != nil {
			return nil, err
		}
		if i >= n/10 {
			all = append(all, time.Since(began))
		}
	}
	slices.Sort(all)
	return all, nil
}

func show(what string, sorted []time.Duration) {
	at := func(q float64) time.Duration {
		return sorted[int(q*float64(len(sorted)-1))].Round(10 * time.Microsecond)
	}
	fmt.Printf("  %s: p50 %s, p99 %s\n", what, at(0.5), at(0.99))
}

// flushTime is the median of writing 8 KiB and flushing them.
func flushTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "flush")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	all, err := times(200, func() error {
		if _, err := f.Write(make([]byte, 8<<10)); err != nil {
			return err
		}
		return f.Sync()
	})
	if err != nil {
		return 0, err
	}
	return all[len(all)/2].Round(10 * time.Microsecond), nil
}
