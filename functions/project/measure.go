package main

import (
	"time"

	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/internal/compose/cloud"
)

// measure tells what the installation's alarms watch (docs/aws.md): how many runs
// failed, and how old the oldest fact is at its projection. A message that comes
// twice counts twice: an alarm is no ledger.
func measure(folded []projection.Told, now time.Time) []cloud.Value {
	var (
		failed int
		oldest time.Duration
		seen   bool
	)
	for _, m := range folded {
		for _, f := range m.Facts {
			seen = true
			oldest = max(oldest, now.Sub(f.At))
			if f.Type == events.TypeRunFailed {
				failed++
			}
		}
	}
	if !seen {
		return nil
	}
	values := []cloud.Value{{Name: "FactAge", Unit: cloud.Milliseconds, Amount: float64(oldest.Microseconds()) / 1000}}
	if failed > 0 {
		values = append(values, cloud.Value{Name: "RunsFailed", Unit: cloud.Count, Amount: float64(failed)})
	}
	return values
}
