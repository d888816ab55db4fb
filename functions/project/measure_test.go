package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/internal/compose/cloud"
)

func TestMeasuresWhatAlarmsWatch(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	fact := func(kind events.Type, age time.Duration) events.Fact {
		return events.Fact{Type: kind, At: now.Add(-age)}
	}

	require.Empty(t, measure([]projection.Told{{Through: 3}}, now), "facts too large for their message are not in it")
	require.Equal(t, []cloud.Value{{Name: "FactAge", Unit: cloud.Milliseconds, Amount: 1500}},
		measure([]projection.Told{{Facts: []events.Fact{fact(events.TypeRunCompleted, time.Second), fact(events.TypeRunCompleted, 1500*time.Millisecond)}}}, now))
	require.Equal(t, []cloud.Value{{Name: "FactAge", Unit: cloud.Milliseconds, Amount: 0}, {Name: "RunsFailed", Unit: cloud.Count, Amount: 2}},
		measure([]projection.Told{{Facts: []events.Fact{fact(events.TypeRunFailed, 0)}}, {Facts: []events.Fact{fact(events.TypeRunFailed, -time.Second)}}}, now),
		"a clock that is ahead is no age")
}
