package sim

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/enginetest/memsource"
)

func number(t *testing.T, name string, standard int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return standard
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s is no number: %v", name, err)
	}
	return n
}

func report(t *testing.T, r Result) {
	t.Helper()
	tail := r.Trace
	if n := number(t, "TRANSHIP_SIM_TRACE", 400); len(tail) > n {
		tail = tail[len(tail)-n:]
	}
	t.Errorf("seed %d (TRANSHIP_SIM_SEED=%d go test -run 'TestSimulation$' ./engine/enginetest/sim)\n%s\n%s\n%s",
		r.Seed, r.Seed, r.About, strings.Join(tail, "\n"), strings.Join(r.Violations, "\n"))
}

// TestSimulation runs TRANSHIP_SIM_SEEDS seeds (200), or the one seed of
// TRANSHIP_SIM_SEED.
func TestSimulation(t *testing.T) {
	if one := os.Getenv("TRANSHIP_SIM_SEED"); one != "" {
		seed, err := strconv.ParseUint(one, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if r := Run(t, seed, Mutation{}); len(r.Violations) > 0 {
			report(t, r)
		}
		return
	}
	seeds := Seeds(uint64(number(t, "TRANSHIP_SIM_BASE", 1)), number(t, "TRANSHIP_SIM_SEEDS", 200))
	var next, failed, runs, steps atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				for {
					n := next.Add(1) - 1
					if n >= int64(len(seeds)) || failed.Load() >= 3 {
						return
					}
					r := Run(t, seeds[n], Mutation{})
					runs.Add(int64(r.Runs))
					steps.Add(int64(r.Steps))
					if len(r.Violations) > 0 {
						failed.Add(1)
						report(t, r)
					}
				}
			})
		}
	})
	t.Logf("%d seeds, %d completed runs, %d steps", min(next.Load(), int64(len(seeds))), runs.Load(), steps.Load())
}

// TestSameSeedSameHistory: without it no failing seed could be looked at.
func TestSameSeedSameHistory(t *testing.T) {
	for _, seed := range Seeds(7, 30) {
		a, b := Run(t, seed, Mutation{}), Run(t, seed, Mutation{})
		if a.Hash != b.Hash {
			for i := range a.Trace {
				if i >= len(b.Trace) || a.Trace[i] != b.Trace[i] {
					t.Fatalf("seed %d: histories part at step %d: %q, then %q", seed, i, a.Trace[i], b.Trace[min(i, len(b.Trace)-1)])
				}
			}
			t.Fatalf("seed %d: the second history is longer", seed)
		}
	}
}

// TestMutantsAreCaught removes one protection at a time: a simulation that does
// not notice proves nothing.
func TestMutantsAreCaught(t *testing.T) {
	mutants := map[string]Mutation{
		"the ledger's claim is not compared":         {Sink: memsink.Broken{NoClaimCheck: true}},
		"the fence's ordinal is not compared":        {Sink: memsink.Broken{NoOrdinalCheck: true}},
		"the sink answers before its commit":         {Sink: memsink.Broken{EarlyAnswer: true}},
		"State is believed instead of the ledger":    {NoReconcile: true},
		"a publish doesn't look at its own row":      {Sink: memsink.Broken{NoPublishRow: true}},
		"a publish doesn't compare staging":          {Sink: memsink.Broken{NoStagingCheck: true}},
		"an append doesn't look into its window":     {Sink: memsink.Broken{NoWindow: true}},
		"State takes checkpoints under stale claims": {StaleCommit: true},
		"a run with standing rows is superseded":     {Sink: memsink.Broken{NoStandingCheck: true}},
		"a plan's cursor is not compared":            {Sink: memsink.Broken{NoCursorCheck: true}},
		"pieces don't wait for their point":          {Streams: true, Source: memsource.Broken{NoAlign: true}},
		"members are published unsettled":            {Streams: true, Source: memsource.Broken{AlwaysSettled: true}},
		"changes are acknowledged before the commit": {Streams: true, Source: memsource.Broken{EagerAck: true}},
		"a member that is read again stands":         {Streams: true, Sink: memsink.Broken{KeepCursor: true}},
		"moved rows are filled from staging":         {Streams: true, Sink: memsink.Broken{FillMoved: true}},
		"epochs go on while a member is published":   {Streams: true, Sink: memsink.Broken{EarlyMerge: true}},
	}
	const limit = 3000
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, seed := range Seeds(3, limit) {
				if r := Run(t, seed, m); len(r.Violations) > 0 {
					t.Logf("caught by seed %d of %d: %s", i+1, limit, r.Violations[0])
					return
				}
			}
			t.Errorf("%d seeds did not notice", limit)
		})
	}
}
