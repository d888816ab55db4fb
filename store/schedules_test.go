package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/schedules"
)

// handClock is a clock that a test moves.
type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

func (c *handClock) Sleep(ctx context.Context, _ time.Time) error {
	<-ctx.Done()
	return ctx.Err()
}

// intake is schedules' port: it makes rows of runs, once a key.
type intake struct {
	d *DB
	// fail, if not nil, is asked first, and lose at the end: its error takes the
	// answer's place when all is done.
	fail, lose func(schedules.StartRequest) error

	mu     sync.Mutex
	starts map[string][]uuid.UUID
	calls  int
}

func (i *intake) Start(ctx context.Context, a control.Actor, req schedules.StartRequest) (out schedules.Started, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls++
	if i.fail != nil {
		if err := i.fail(req); err != nil {
			return out, err
		}
	}
	if runs, ok := i.starts[req.Key]; ok {
		return schedules.Started{Runs: runs}, nil
	}
	err = i.d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		var run uuid.UUID
		var state string
		err := tx.QueryRow(ctx, `SELECT id, state FROM runs WHERE organization = $1 AND pipeline = $2
			AND state IN ('scheduled', 'requested', 'running', 'paused')`, a.Organization, req.Pipeline).Scan(&run, &state)
		if err == nil {
			out.Busy = []schedules.Busy{{Route: "a->b", Run: run, State: state}}
			return nil
		}
		id := uuid.Must(uuid.NewV7())
		_, err = tx.Exec(ctx, `INSERT INTO runs (organization, id, pipeline, pipeline_name, version, route_key, state)
			VALUES ($1, $2, $3, 'shop', 'v', 'a->b', 'requested')`, a.Organization, id, req.Pipeline)
		out.Runs = []uuid.UUID{id}
		return err
	})
	if err == nil && len(out.Runs) > 0 {
		i.starts[req.Key] = out.Runs
	}
	if err == nil && i.lose != nil {
		err = i.lose(req)
	}
	return out, err
}

// scheduling is an organization with a pipeline, a clock and what fires.
type scheduling struct {
	*services
	clock    *handClock
	intake   *intake
	service  *schedules.Service
	firing   *schedules.Firing
	pipeline uuid.UUID
}

type noScheduler struct{}

func (noScheduler) Moved(context.Context, schedules.Ref) error { return nil }

func newScheduling(tb testing.TB, d *DB, key, now string) *scheduling {
	tb.Helper()
	s := &scheduling{services: newServices(tb, d, key), clock: &handClock{}}
	s.clock.set(instant(now))
	s.intake = &intake{d: d, starts: map[string][]uuid.UUID{}}
	s.service = &schedules.Service{Store: d.Schedules(), Scheduler: noScheduler{}, Clock: s.clock}
	s.firing = &schedules.Firing{Ledger: d.Schedules(), Intake: s.intake, Log: slog.New(slog.DiscardHandler)}
	s.pipeline = s.newPipeline(tb, "shop")
	return s
}

func (s *services) newPipeline(tb testing.TB, name string) uuid.UUID {
	tb.Helper()
	from := s.connection(tb, name+"-from", connections.Source)
	to := s.connection(tb, name+"-to", connections.Sink)
	p, err := s.pipelines.Create(tb.Context(), s.a, pipelines.Draft{Name: name, Graph: graphOf(from.ID.String(), to.ID.String())})
	require.NoError(tb, err)
	return p.ID
}

func instant(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

func (s *scheduling) create(tb testing.TB, d schedules.Draft) schedules.Schedule {
	tb.Helper()
	d.Pipeline = s.pipeline
	made, err := s.service.Create(tb.Context(), s.a, d)
	require.NoError(tb, err)
	return made
}

// at moves the clock and fires what is due.
func (s *scheduling) at(tb testing.TB, now string) {
	tb.Helper()
	s.clock.set(instant(now))
	require.NoError(tb, s.firing.Run(tb.Context(), s.clock.Now()))
	next, err := s.firing.Next(tb.Context(), time.Time{})
	require.NoError(tb, err)
	require.True(tb, next.IsZero() || next.After(s.clock.Now()), "nothing is left that is due: %s", next)
}

func (s *scheduling) occurrences(tb testing.TB, id uuid.UUID) []string {
	tb.Helper()
	list, err := s.service.Store.ListOccurrences(tb.Context(), s.a, id, control.Page{})
	require.NoError(tb, err)
	var out []string
	for _, o := range list.Items {
		text := o.Instant.Format(time.RFC3339) + " " + string(o.State)
		if o.Reason != "" {
			text += " " + o.Reason
		}
		if o.Missed > 0 {
			text += fmt.Sprintf(" missed %d", o.Missed)
		}
		out = append(out, text)
	}
	slices.Reverse(out)
	return out
}

// endRuns moves all open runs to a state, and tells as the projection does.
func (s *scheduling) endRuns(tb testing.TB, state string) {
	tb.Helper()
	require.NoError(tb, s.d.Tx(tb.Context(), s.a.Organization, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `UPDATE runs SET state = $2 WHERE organization = $1 AND state IN ('scheduled', 'requested', 'running', 'paused')`,
			s.a.Organization, state)
		return err
	}))
	if state == "paused" {
		return
	}
	_, err := s.d.Schedules().Release(tb.Context(), s.a.Organization, s.pipeline, s.clock.Now())
	require.NoError(tb, err)
}

func (s *scheduling) rule(tb testing.TB, events ...string) notify.Rule {
	tb.Helper()
	r, err := s.d.Notifications().CreateRule(tb.Context(), s.a, notify.Rule{
		ID: uuid.Must(uuid.NewV7()), Name: "rule-" + events[0], Events: events, Channel: notify.Email, To: []string{"a@example.org"},
	})
	require.NoError(tb, err)
	return r
}

func (s *scheduling) alerts(tb testing.TB) []string {
	tb.Helper()
	list, err := s.d.Notifications().ListDeliveries(tb.Context(), s.a, notify.Filter{}, control.Page{})
	require.NoError(tb, err)
	var out []string
	for _, d := range list.Items {
		out = append(out, d.Event)
	}
	slices.Sort(out)
	return out
}

// skips are what runs tell of occurrences that they made be skipped.
func (s *scheduling) skips(tb testing.TB) (out string) {
	tb.Helper()
	require.NoError(tb, s.d.Tx(tb.Context(), s.a.Organization, func(ctx context.Context, tx Tx) error {
		return tx.QueryRow(ctx, `SELECT coalesce(string_agg((payload ->> 'instant') || ' ' || (payload ->> 'reason'), ', ' ORDER BY run, number), '')
			FROM facts WHERE type = 'occurrence.skipped'`).Scan(&out)
	}))
	return out
}

func hourly() schedules.Draft {
	return schedules.Draft{Name: "hourly", Timing: schedules.Timing{Cron: "0 * * * *", Zone: "Europe/Berlin"}}
}

func TestScheduleFires(t *testing.T) {
	t.Parallel()
	s := newScheduling(t, newDB(t), "a", "2026-11-30T10:20:00Z")
	made := s.create(t, hourly())
	require.Equal(t, instant("2026-11-30T11:00:00Z"), made.NextAt)
	s.at(t, "2026-11-30T10:59:59Z")
	require.Empty(t, s.occurrences(t, made.ID))
	s.at(t, "2026-11-30T11:00:00Z")
	s.at(t, "2026-11-30T11:00:00Z")
	require.Equal(t, []string{"2026-11-30T11:00:00Z fired"}, s.occurrences(t, made.ID))
	require.Len(t, s.intake.starts, 1)
	require.Equal(t, 1, s.intake.calls)
	next, err := s.service.Next(t.Context(), s.a, made.ID, 3)
	require.NoError(t, err)
	var times []string
	for _, n := range next {
		require.Equal(t, n.Instant, n.FiresAt)
		times = append(times, n.Instant.In(n.Zone).Format(time.RFC3339))
	}
	require.Equal(t, []string{"2026-11-30T13:00:00+01:00", "2026-11-30T14:00:00+01:00", "2026-11-30T15:00:00+01:00"}, times)
}

// A paused run never blocks a schedule silently.
func TestScheduleOverlap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		overlap     schedules.Overlap
		state       string
		occurrences []string
		alerts      []string
		// told are the skips that the first run tells of.
		told string
	}{
		"skip": {schedules.Skip, "running", []string{
			"2026-11-30T11:00:00Z fired", "2026-11-30T12:00:00Z skipped overlap", "2026-11-30T13:00:00Z skipped overlap", "2026-11-30T14:00:00Z fired",
		}, []string{"schedule.skipped", "schedule.skipped"}, "2026-11-30T12:00:00Z overlap, 2026-11-30T13:00:00Z overlap"},
		"skip, paused": {schedules.Skip, "paused", []string{
			"2026-11-30T11:00:00Z fired", "2026-11-30T12:00:00Z skipped paused_run", "2026-11-30T13:00:00Z skipped paused_run", "2026-11-30T14:00:00Z fired",
		}, []string{"schedule.skipped", "schedule.skipped"}, "2026-11-30T12:00:00Z paused_run, 2026-11-30T13:00:00Z paused_run"},
		"queue": {schedules.Queue, "running", []string{
			"2026-11-30T11:00:00Z fired", "2026-11-30T12:00:00Z fired", "2026-11-30T13:00:00Z skipped queue_full", "2026-11-30T14:00:00Z queued overlap",
		}, []string{"schedule.skipped"}, "2026-11-30T13:00:00Z queue_full"},
		"queue, paused": {schedules.Queue, "paused", []string{
			"2026-11-30T11:00:00Z fired", "2026-11-30T12:00:00Z fired", "2026-11-30T13:00:00Z skipped queue_full", "2026-11-30T14:00:00Z queued overlap",
		}, []string{"schedule.blocked", "schedule.skipped"}, "2026-11-30T13:00:00Z queue_full"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScheduling(t, newDB(t), "a", "2026-11-30T10:20:00Z")
			s.rule(t, notify.ScheduleSkipped, notify.ScheduleBlocked)
			d := hourly()
			d.Overlap = c.overlap
			made := s.create(t, d)
			s.at(t, "2026-11-30T11:00:00Z")
			if c.state == "paused" {
				s.endRuns(t, "paused")
			}
			s.at(t, "2026-11-30T12:00:00Z")
			s.at(t, "2026-11-30T13:00:00Z")
			s.endRuns(t, "completed")
			s.at(t, "2026-11-30T13:10:00Z")
			s.at(t, "2026-11-30T14:00:00Z")
			require.Equal(t, c.occurrences, s.occurrences(t, made.ID))
			require.Equal(t, c.alerts, s.alerts(t))
			require.Equal(t, c.told, s.skips(t))
		})
	}
}

func TestScheduleCatchUp(t *testing.T) {
	t.Parallel()
	for policy, want := range map[schedules.CatchUp][]string{
		schedules.CatchUpNone: {"2026-11-30T14:00:00Z skipped missed missed 3", "2026-11-30T15:00:00Z fired"},
		schedules.CatchUpOne:  {"2026-11-30T14:00:00Z fired missed 3", "2026-11-30T15:00:00Z fired"},
		schedules.CatchUpAll: {
			"2026-11-30T13:00:00Z fired missed 2", "2026-11-30T14:00:00Z fired", "2026-11-30T15:00:00Z fired",
		},
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			s := newScheduling(t, newDB(t), "a", "2026-11-30T10:20:00Z")
			d := hourly()
			d.CatchUp, d.CatchUpLimit = policy, 2
			made := s.create(t, d)
			s.at(t, "2026-11-30T14:40:00Z")
			s.endRuns(t, "completed")
			s.at(t, "2026-11-30T14:41:00Z")
			s.endRuns(t, "completed")
			s.at(t, "2026-11-30T15:00:00Z")
			require.Equal(t, want, s.occurrences(t, made.ID))
		})
	}
}

// One that fires on time tells of those that were missed before it.
func TestScheduleLate(t *testing.T) {
	t.Parallel()
	s := newScheduling(t, newDB(t), "a", "2026-11-30T10:20:00Z")
	d := hourly()
	d.CatchUp = schedules.CatchUpNone
	made := s.create(t, d)
	s.at(t, "2026-11-30T13:00:20Z")
	require.Equal(t, []string{"2026-11-30T13:00:00Z fired missed 2"}, s.occurrences(t, made.ID))
}

func TestScheduleParks(t *testing.T) {
	t.Parallel()
	s := newScheduling(t, newDB(t), "a", "2026-11-30T10:20:00Z")
	s.rule(t, notify.ScheduleParked)
	bad, good := s.create(t, hourly()), s.create(t, schedules.Draft{Name: "good", Timing: schedules.Timing{Every: time.Hour, Anchor: instant("2026-11-30T11:30:00Z")}})
	s.intake.fail = func(r schedules.StartRequest) error {
		if r.Schedule == bad.ID {
			return control.Invalid("edges[0]", "", "there is no table orders")
		}
		return nil
	}
	s.at(t, "2026-11-30T11:00:00Z")
	got, err := s.service.Get(t.Context(), s.a, bad.ID)
	require.NoError(t, err)
	require.Equal(t, schedules.Parked, got.State)
	require.Contains(t, got.Reason, "there is no table orders")
	require.True(t, got.NextAt.IsZero())
	calls := s.intake.calls
	s.at(t, "2026-11-30T12:00:00Z")
	require.Equal(t, calls+1, s.intake.calls, "the good one alone")
	require.Equal(t, []string{"2026-11-30T11:30:00Z fired"}, s.occurrences(t, good.ID))
	require.Equal(t, []string{"schedule.parked"}, s.alerts(t))

	s.intake.fail = nil
	s.endRuns(t, "completed")
	_, err = s.service.Pause(t.Context(), s.a, good.ID, 0)
	require.NoError(t, err)
	got, err = s.service.Resume(t.Context(), s.a, bad.ID, 0)
	require.NoError(t, err)
	require.Equal(t, schedules.Active, got.State)
	s.at(t, "2026-11-30T13:00:00Z")
	require.Equal(t, []string{"2026-11-30T11:00:00Z skipped parked", "2026-11-30T13:00:00Z fired"}, s.occurrences(t, bad.ID))
}

// A row that nobody can read anew, such as a zone that the next version lacks.
func TestScheduleWithoutZoneParks(t *testing.T) {
	t.Parallel()
	s := newScheduling(t, newDB(t), "a", "2026-11-30T10:20:00Z")
	made := s.create(t, hourly())
	require.NoError(t, s.d.Tx(t.Context(), s.a.Organization, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `UPDATE schedules SET time_zone = 'Europe/Atlantis'`)
		return err
	}))
	s.at(t, "2026-11-30T11:00:00Z")
	got, err := s.service.Get(t.Context(), s.a, made.ID)
	require.NoError(t, err)
	require.Equal(t, schedules.Parked, got.State)
	require.Contains(t, got.Reason, "Europe/Atlantis")
}

func TestScheduleRetriesAndFails(t *testing.T) {
	t.Parallel()
	s := newScheduling(t, newDB(t), "a", "2026-11-30T10:20:00Z")
	s.rule(t, notify.ScheduleFailed)
	made := s.create(t, hourly())
	s.intake.fail = func(schedules.StartRequest) error { return errors.New("the moon is in the way") }
	s.clock.set(instant("2026-11-30T11:00:00Z"))
	for range 100 {
		require.NoError(t, s.firing.Run(t.Context(), s.clock.Now()))
		next, err := s.firing.Next(t.Context(), time.Time{})
		require.NoError(t, err)
		require.True(t, next.After(s.clock.Now()))
		s.clock.set(next)
		if !next.Before(instant("2026-11-30T12:00:00Z")) {
			break
		}
	}
	require.Equal(t, 10, s.intake.calls)
	require.Equal(t, []string{"2026-11-30T11:00:00Z failed error"}, s.occurrences(t, made.ID))
	require.Equal(t, []string{"schedule.failed"}, s.alerts(t))
	s.intake.fail = nil
	s.at(t, "2026-11-30T12:00:00Z")
	require.Equal(t, []string{"2026-11-30T11:00:00Z failed error", "2026-11-30T12:00:00Z fired"}, s.occurrences(t, made.ID))
}

// Many processes fire the same schedules: each occurrence starts once.
func TestSchedulesFireOnceAmongMany(t *testing.T) {
	t.Parallel()
	s := newScheduling(t, newDB(t), "a", "2026-11-30T10:20:00Z")
	var made []schedules.Schedule
	for i := range 20 {
		d := hourly()
		d.Name, d.Overlap = fmt.Sprintf("s%d", i), schedules.Allow
		d.Timing.Jitter = time.Minute
		made = append(made, s.create(t, d))
	}
	now := instant("2026-11-30T11:01:00Z")
	s.clock.set(now)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 5 {
				if err := s.firing.Run(t.Context(), now); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, m := range made {
		require.Len(t, s.occurrences(t, m.ID), 1)
	}
	require.Equal(t, 20, s.intake.calls)
}

func TestScheduleOnce(t *testing.T) {
	t.Parallel()
	s := newScheduling(t, newDB(t), "a", "2026-11-30T10:20:00Z")
	_, err := s.service.Create(t.Context(), s.a, schedules.Draft{Pipeline: s.pipeline, Timing: schedules.Timing{At: instant("2026-11-30T10:00:00Z")}})
	var invalid *control.InvalidError
	require.ErrorAs(t, err, &invalid)
	made := s.create(t, schedules.Draft{Timing: schedules.Timing{At: instant("2026-11-30T11:00:00Z")}})
	s.at(t, "2026-11-30T11:00:00Z")
	got, err := s.service.Get(t.Context(), s.a, made.ID)
	require.NoError(t, err)
	require.Equal(t, schedules.Finished, got.State)
	require.Equal(t, []string{"2026-11-30T11:00:00Z fired"}, s.occurrences(t, made.ID))
	_, err = s.service.Pause(t.Context(), s.a, made.ID, 0)
	var conflict *control.ConflictError
	require.ErrorAs(t, err, &conflict)
}

func TestScheduleVersionsAndLists(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	s, other := newScheduling(t, d, "a", "2026-11-30T10:20:00Z"), newScheduling(t, d, "b", "2026-11-30T10:20:00Z")
	made := s.create(t, hourly())
	_, err := s.service.Create(t.Context(), s.a, schedules.Draft{Name: "hourly", Pipeline: s.pipeline, Timing: made.Timing})
	var conflict *control.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "name_taken", conflict.Code)
	var missing *control.NotFoundError
	_, err = s.service.Create(t.Context(), s.a, schedules.Draft{Pipeline: other.pipeline, Timing: made.Timing})
	require.ErrorAs(t, err, &missing, "a foreign pipeline")
	_, err = other.service.Get(t.Context(), other.a, made.ID)
	require.ErrorAs(t, err, &missing)
	require.ErrorAs(t, other.service.Delete(t.Context(), other.a, made.ID, 0), &missing)

	changed := hourly()
	changed.Pipeline, changed.Timing.Cron = s.pipeline, "30 * * * *"
	got, err := s.service.Update(t.Context(), s.a, made.ID, 1, changed)
	require.NoError(t, err)
	require.Equal(t, instant("2026-11-30T10:30:00Z"), got.NextAt)
	require.EqualValues(t, 2, got.Version)
	var stale *control.StaleVersionError
	_, err = s.service.Update(t.Context(), s.a, made.ID, 1, changed)
	require.ErrorAs(t, err, &stale)
	require.EqualValues(t, 2, stale.Current)

	for i := range 4 {
		d := hourly()
		d.Name = fmt.Sprintf("more%d", i)
		s.create(t, d)
	}
	var names []string
	page := control.Page{Limit: 2}
	for {
		list, err := s.service.List(t.Context(), s.a, schedules.Filter{Pipeline: s.pipeline, State: schedules.Active}, page)
		require.NoError(t, err)
		for _, one := range list.Items {
			names = append(names, one.Name)
		}
		if list.Next == "" {
			break
		}
		page.After = list.Next
	}
	require.Equal(t, []string{"hourly", "more0", "more1", "more2", "more3"}, names)

	ctx := control.WithIdempotency(t.Context(), control.Idempotency{Key: "k", Hash: []byte("h")})
	again := hourly()
	again.Name, again.Pipeline = "once", s.pipeline
	first, err := s.service.Create(ctx, s.a, again)
	require.NoError(t, err)
	second, err := s.service.Create(ctx, s.a, again)
	require.NoError(t, err)
	require.Equal(t, first, second)

	require.NoError(t, s.service.Delete(t.Context(), s.a, made.ID, 0))
	_, err = s.service.Get(t.Context(), s.a, made.ID)
	require.ErrorAs(t, err, &missing)
}
