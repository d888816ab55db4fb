package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranship-io/tranship/control/schedules"
)

// planned is a schedule as the reference model has it: every hour, one run at a time.
type planned struct {
	queue  bool
	paused bool
	// run is the pipeline's open run: none, open or paused.
	run  string
	list []happened
}

// happened is an occurrence as it should be listed.
type happened struct {
	at            time.Time
	state, reason string
}

func (p *planned) queued() *happened {
	for i := range p.list {
		if p.list[i].state == "queued" {
			return &p.list[i]
		}
	}
	return nil
}

// fires is what becomes of the occurrence of an hour.
func (p *planned) fires(at time.Time) {
	reason := "overlap"
	if p.run == "paused" {
		reason = "paused_run"
	}
	o := happened{at, "fired", ""}
	switch {
	case p.run == "none":
		p.run = "open"
	case !p.queue:
		o.state, o.reason = "skipped", reason
	case p.queued() != nil:
		o.state, o.reason = "skipped", "queue_full"
	default:
		o.state, o.reason = "queued", reason
	}
	p.list = append(p.list, o)
}

// ends is what the end of the open run lets happen.
func (p *planned) ends() {
	p.run = "none"
	if q := p.queued(); q != nil {
		q.state, q.reason, p.run = "fired", "", "open"
	}
}

func (p *planned) text() []string {
	var out []string
	for _, h := range p.list {
		text := h.at.Format(time.RFC3339) + " " + h.state
		if h.reason != "" {
			text += " " + h.reason
		}
		out = append(out, text)
	}
	return out
}

// fire lets one or two processes fire at once, until nothing is due any more: what
// failed is due again a little later.
func (s *scheduling) fire(tb testing.TB, t *rapid.T, processes int) {
	tb.Helper()
	for range 4 {
		var wait sync.WaitGroup
		for range processes {
			wait.Go(func() { _ = s.firing.Run(tb.Context(), s.clock.Now()) })
		}
		wait.Wait()
		next, err := s.firing.Next(tb.Context(), time.Time{})
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		// Claims of a failed start lapse after a minute.
		if next.IsZero() || next.After(s.clock.Now().Add(2*time.Minute)) {
			return
		}
		s.clock.set(s.clock.Now().Add(2 * time.Minute))
	}
	t.Fatal("what is due stays due")
}

// TestScheduleModel: hours that pass, starts that fail or whose answer is lost,
// processes that fire at once, runs that pause and end, and people who pause the
// schedule make the occurrences that the model has, and one run for each that fired.
func TestScheduleModel(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		s := newScheduling(t, d, fmt.Sprint("model-", n), "2026-11-30T10:20:00Z")
		p := &planned{queue: rapid.Bool().Draw(rt, "queue"), run: "none"}
		draft := hourly()
		if draft.Overlap = schedules.Skip; p.queue {
			draft.Overlap = schedules.Queue
		}
		made := s.create(t, draft)
		defer func() {
			// It would fire in the next check's time.
			require.NoError(t, s.service.Delete(t.Context(), s.a, made.ID, 0))
		}()
		hour := instant("2026-11-30T10:00:00Z")
		once := func(err error) func(schedules.StartRequest) error {
			return func(schedules.StartRequest) error {
				defer func() { err = nil }()
				return err
			}
		}
		operate := func(to bool) {
			current, err := s.service.Get(t.Context(), s.a, made.ID)
			require.NoError(t, err)
			if to {
				_, err = s.service.Pause(t.Context(), s.a, made.ID, current.Version)
			} else {
				_, err = s.service.Resume(t.Context(), s.a, made.ID, current.Version)
			}
			require.NoError(t, err)
			p.paused = to
		}
		rt.Repeat(map[string]func(*rapid.T){
			"an hour passes": func(rt *rapid.T) {
				s.intake.fail, s.intake.lose = nil, nil
				switch rapid.SampledFrom([]string{"", "fails", "answer lost"}).Draw(rt, "start") {
				case "fails":
					s.intake.fail = once(errors.New("the database is away"))
				case "answer lost":
					s.intake.lose = once(errors.New("the connection was cut"))
				}
				hour = hour.Add(time.Hour)
				s.clock.set(hour)
				s.fire(t, rt, rapid.IntRange(1, 2).Draw(rt, "processes"))
				if !p.paused {
					p.fires(hour)
				}
			},
			"the run ends": func(rt *rapid.T) {
				s.intake.fail, s.intake.lose = nil, nil
				s.endRuns(t, "completed")
				s.fire(t, rt, 1)
				p.ends()
			},
			"the run pauses": func(*rapid.T) {
				s.endRuns(t, "paused")
				if p.run == "open" {
					p.run = "paused"
				}
			},
			"the schedule pauses":  func(*rapid.T) { operate(true) },
			"the schedule resumes": func(*rapid.T) { operate(false) },
			"": func(rt *rapid.T) {
				got, want := s.occurrences(t, made.ID), p.text()
				if fmt.Sprint(got) != fmt.Sprint(want) {
					rt.Fatalf("occurrences\n %v, wanted\n %v", got, want)
				}
				fired := 0
				for _, h := range p.list {
					if h.state == "fired" {
						fired++
					}
				}
				if len(s.intake.starts) != fired {
					rt.Fatalf("%d occurrences fired and %d runs started:\n%v\n%v", fired, len(s.intake.starts), p.text(), s.intake.starts)
				}
			},
		})
	})
}
