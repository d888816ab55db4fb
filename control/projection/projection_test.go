package projection

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/events"
)

var start = time.Date(2026, 11, 30, 10, 59, 0, 0, time.UTC)

// telling folds payloads as a run's facts.
type telling struct {
	*testing.T
	run Run
	res Resources
	b   Batch
	at  time.Time
}

func newTelling(t *testing.T) *telling {
	t.Helper()
	return &telling{T: t, run: Run{ID: uuid.Must(uuid.NewV7()), PipelineName: "shop", CreatedAt: start}, res: Resources{}, at: start}
}

func (t *telling) tell(list ...events.Payload) {
	t.Helper()
	for _, p := range list {
		f, err := events.New(t.run.ID, t.at, p)
		require.NoError(t, err)
		f.Number = t.run.Folded + 1
		require.NoError(t, Fold(&t.run, t.res, f, &t.b))
		// The same fact again changes nothing.
		before := t.run
		require.NoError(t, Fold(&t.run, t.res, f, &t.b))
		require.Equal(t, before, t.run)
	}
}

func (t *telling) later(d time.Duration) { t.at = t.at.Add(d) }

func TestFoldALifeWithAResume(t *testing.T) {
	c := newTelling(t)
	c.tell(events.RunRequested{}, events.AttemptStarted{Generation: 1, MemoryBytes: 512 << 20}, events.RunStarted{}, events.ResourcePlanned{Resource: "a", Splits: 2})
	c.later(10 * time.Second)
	c.tell(events.EpochCommitted{Resource: "a", Counts: events.Counts{Read: 10, Applied: 10, Bytes: 100}}, events.SplitFinished{Resource: "a"})
	c.tell(events.AttemptUsed{Generation: 1, CPUMillis: 700, PeakBytes: 5000}, events.RunFailed{Class: "retryable", Error: "away", Resumable: true})
	require.Equal(t, "failed", c.run.State)
	require.True(t, c.run.Resumable)
	require.Equal(t, Usage{Compute: 10000, Memory: 10000 * 512, CPU: 700, Moved: 100}, c.run.Usage)
	failed := Key{Hour: start.Truncate(time.Hour), Status: "failed"}
	require.Equal(t, Metrics{
		Runs: 1, Read: 10, Written: 10, Bytes: 100, Millis: 10000, MinMillis: 10000, MaxMillis: 10000, Usage: c.run.Usage, PeakBytes: 5000,
		Durations: map[int]int64{DurationClass(10 * time.Second): 1},
	}, c.b.Metrics[failed])

	c.later(time.Hour)
	c.tell(events.RunResumed{By: "me"})
	require.Equal(t, "requested", c.run.State)
	require.Empty(t, c.run.Error)
	c.tell(events.AttemptStarted{Attempt: 2, Generation: 2, MemoryBytes: 512 << 20})
	c.later(5 * time.Second)
	c.tell(events.ResourceCompleted{Resource: "a", Counts: events.Counts{Read: 25, Applied: 24, Skipped: 1, Bytes: 250}}, events.RunCompleted{RowsRead: 25, RowsWritten: 24})
	require.Equal(t, "completed", c.run.State)
	require.Equal(t, Counts{Read: 25, Applied: 24, Skipped: 1, Bytes: 250}, c.run.Counts)
	completed := c.b.Metrics[Key{Hour: c.at.Truncate(time.Hour), Status: "completed"}]
	require.EqualValues(t, 15, completed.Read, "what it did since its failure")
	require.EqualValues(t, 5000, completed.Millis, "from its resumption")
	require.EqualValues(t, 1, c.b.Metrics[failed].Runs, "an hour that is past does not change")
	require.EqualValues(t, 15, c.b.Metrics[Key{Hour: c.at.Truncate(time.Hour), Resource: "a", Status: "completed"}].Read)
	require.Equal(t, 2, c.run.Attempts)

	// What is told after the end belongs to that end.
	c.tell(events.AttemptUsed{Generation: 2, CPUMillis: 300}, events.AttemptHandedOver{Generation: 2})
	require.EqualValues(t, 300, c.b.Metrics[Key{Hour: c.at.Truncate(time.Hour), Status: "completed"}].CPU)

	var types []string
	for _, e := range c.b.Events {
		types = append(types, e.Type)
	}
	require.Equal(t, []string{
		notify.AttemptStarted, notify.RunStarted, notify.RunPartial, notify.AttemptStarted, notify.ResourceCompleted, notify.RunCompleted,
	}, types)
}

func TestFoldResetsAndGaps(t *testing.T) {
	c := newTelling(t)
	c.tell(events.EpochCommitted{Resource: "a", Counts: events.Counts{Read: 10, Applied: 10, Bytes: 100}}, events.ResourceReset{Resource: "a"})
	require.Equal(t, Counts{}, c.run.Counts)
	require.EqualValues(t, 100, c.run.Usage.Moved, "it was written all the same")
	c.tell(events.AttemptStarted{Generation: 1})
	c.later(time.Second)
	c.tell(events.AttemptInterrupted{Generation: 1})
	require.Equal(t, 1, c.run.Interruptions)
	require.Empty(t, c.run.Memo.Open)

	f, err := events.New(c.run.ID, c.at, events.RunCompleted{})
	require.NoError(t, err)
	f.Number = c.run.Folded + 2
	var gap *GapError
	require.ErrorAs(t, Fold(&c.run, c.res, f, &c.b), &gap)
	f.Number, f.Type = c.run.Folded+1, "run.teleported"
	require.NoError(t, Fold(&c.run, c.res, f, &c.b), "a newer process wrote it")
	require.Equal(t, f.Number, c.run.Folded)
}

func TestPercentile(t *testing.T) {
	require.Zero(t, Percentile(nil, 0.5))
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var all []time.Duration
		classes := map[int]int64{}
		for range 1 + rng.IntN(300) {
			d := time.Duration(1+rng.Int64N(1<<rng.IntN(31))) * time.Millisecond
			all = append(all, d)
			classes[DurationClass(d)]++
		}
		slices.Sort(all)
		for _, part := range []float64{0.01, 0.5, 0.95, 0.99, 1} {
			rank := int(part*float64(len(all))+0.999999) - 1
			exact := float64(all[max(rank, 0)])
			got := float64(Percentile(classes, part))
			require.InEpsilon(t, exact, got, 0.05)
		}
	}
}

func TestMetricsAddUpInAnyOrder(t *testing.T) {
	parts := []Metrics{endingOf(3 * time.Second), endingOf(time.Second), {Usage: Usage{CPU: 5}, PeakBytes: 7}, endingOf(2 * time.Second)}
	var forth, back Metrics
	for i := range parts {
		forth.Add(parts[i])
		back.Add(parts[len(parts)-1-i])
	}
	require.Equal(t, forth, back)
	require.EqualValues(t, 1000, forth.MinMillis)
	require.EqualValues(t, 3000, forth.MaxMillis)
}

func TestHealth(t *testing.T) {
	now := start
	route := func(change func(*RouteHealth)) RouteHealth {
		r := RouteHealth{Pipeline: uuid.Max, CreatedAt: now.Add(-48 * time.Hour), SuccessStartedAt: now.Add(-2 * time.Hour), SuccessEndedAt: now.Add(-time.Hour)}
		change(&r)
		return r
	}
	good := route(func(*RouteHealth) {})
	for want, r := range map[string]RouteHealth{
		"healthy": good,
		"failing": route(func(r *RouteHealth) { r.Failures = 2 }),
		"stale":   route(func(r *RouteHealth) { r.Expected = 30 * time.Minute }),
		"paused":  route(func(r *RouteHealth) { r.Paused, r.Expected = true, time.Minute }),
		"unknown": route(func(r *RouteHealth) { r.SuccessStartedAt, r.SuccessEndedAt = time.Time{}, time.Time{} }),
	} {
		h := healthOf(r, now)
		require.Equal(t, want, h.State)
		require.Equal(t, want, worse(h, healthOf(good, now)).State)
		require.Equal(t, want, worse(healthOf(good, now), h).State)
	}
	require.Equal(t, 2*time.Hour, healthOf(good, now).Lag)
}

func TestPrices(t *testing.T) {
	p := Prices{ComputeHour: 2, MemoryGiBHour: 3, GiB: 5, Run: 7}
	u := Usages{Runs: 2, Compute: 3600 * 1000 / 2, MemoryTime: 3600 * 1000 * 1024, Bytes: 3 << 30}
	require.InDelta(t, 2*7+1+3+15, p.Of(u), 1e-9)
}
