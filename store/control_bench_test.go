package store

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/runs"
)

// BenchmarkIntake accepts runs, each of a pipeline of its own, side by side.
func BenchmarkIntake(b *testing.B) {
	d := newDB(b)
	f := newFleet(b, d, "acme")
	for n := range b.N {
		f.pipeline(fmt.Sprint("p", n))
	}
	var next atomic.Int64
	b.SetParallelism(4)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			_, err := f.svc.Start(b.Context(), f.a, runs.StartRequest{Pipeline: fmt.Sprint("p", next.Add(1)-1)})
			if err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	require.Positive(b, next.Load())
}
