package sim

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
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
