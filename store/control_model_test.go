package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/engine"
)

// wanted is a run as the reference model has it: a few fields and plain rules,
// written without the decisions of package runs.
type wanted struct {
	id        uuid.UUID
	state     engine.RunState
	desired   engine.Desired
	resumable bool
	// offer is none, waiting, sent or accepted; expired: its time is over.
	offer   string
	expired bool
	leased  bool
	// late: the lease's time is over.
	late                              bool
	attempts, failures, interruptions int

	command dispatch.Command
	st      *RunState
	lease   engine.Lease
}

const holder = "model"

func (w *wanted) open() bool {
	return w.state == "scheduled" || w.state == "requested" || w.state == "running" || w.state == "paused"
}
func (w *wanted) busy() bool {
	return w.leased && !w.late || w.offer == "accepted" && !w.expired
}
func (w *wanted) end(s engine.RunState) {
	w.state, w.desired, w.resumable, w.offer, w.expired = s, "run", false, "none", false
}
func (w *wanted) offerNow() { w.offer, w.expired = "waiting", false }

// settle is what becomes of an open run that nobody has.
func (w *wanted) settle() {
	if w.state == "paused" && w.desired == "cancel" {
		w.end("canceled")
		return
	}
	if w.leased || w.offer != "none" || w.state != "requested" && w.state != "running" {
		return
	}
	switch {
	case w.desired == "pause":
		w.end("paused")
	case w.desired == "cancel" && w.attempts == 0:
		w.end("canceled")
	default:
		w.offerNow()
	}
}

// machine runs random operations on store and model side by side.
type machine struct {
	f      *fleet
	latest map[string]*wanted
	all    []*wanted
}

var modelPipelines = []string{"one", "two"}

func (m *machine) pick(t *rapid.T) (string, *wanted) {
	name := rapid.SampledFrom(modelPipelines).Draw(t, "pipeline")
	w := m.latest[name]
	if w == nil {
		t.Skip("no run yet")
	}
	return name, w
}

func (m *machine) conflict(t *rapid.T, err error, want bool) {
	var c *control.ConflictError
	if want != errors.As(err, &c) || !want && err != nil {
		t.Fatalf("conflict wanted: %v, got %v", want, err)
	}
}

func (m *machine) actions() map[string]func(*rapid.T) {
	ctx := context.Background()
	return map[string]func(*rapid.T){
		"start": func(t *rapid.T) {
			name := rapid.SampledFrom(modelPipelines).Draw(t, "pipeline")
			s, err := m.f.svc.Start(ctx, m.f.a, runs.StartRequest{Pipeline: name})
			w := m.latest[name]
			m.conflict(t, err, w != nil && w.open())
			switch {
			case w != nil && w.open():
			case w != nil && w.state == "failed" && w.resumable:
				require.Equal(t, w.id, s.Runs[0].ID)
				m.resumed(w)
			default:
				w = &wanted{id: s.Runs[0].ID, state: "requested", desired: "run", offer: "waiting"}
				m.latest[name], m.all = w, append(m.all, w)
			}
		},
		"cancel": func(t *rapid.T) {
			_, w := m.pick(t)
			_, err := m.f.svc.Cancel(ctx, m.f.a, w.id)
			m.conflict(t, err, w.state == "completed" || w.state == "failed" && !w.resumable)
			switch {
			case err != nil, w.state == "canceled", w.open() && w.state != "paused" && w.desired == "cancel":
			case w.busy():
				w.desired = "cancel"
			case w.state == "running" && w.interruptions > 0:
				w.desired = "cancel"
				w.offerNow()
			default:
				w.end("canceled")
			}
		},
		"pause": func(t *rapid.T) {
			_, w := m.pick(t)
			_, err := m.f.svc.Pause(ctx, m.f.a, w.id)
			legal := w.state == "paused" || (w.state == "running" || w.state == "requested") && w.desired != "cancel"
			m.conflict(t, err, !legal)
			switch {
			case !legal, w.state == "paused":
			case w.busy():
				w.desired = "pause"
			default:
				w.end("paused")
			}
		},
		"resume": func(t *rapid.T) {
			_, w := m.pick(t)
			_, err := m.f.svc.Resume(ctx, m.f.a, w.id)
			legal := w.open() && w.desired != "cancel" || w.state == "failed" && w.resumable
			m.conflict(t, err, !legal)
			switch {
			case !legal:
			case w.open() && w.state != "paused":
				w.desired = "run"
			default:
				m.resumed(w)
			}
		},
		"admit": func(t *rapid.T) {
			for _, c := range m.f.admit() {
				for _, w := range m.all {
					if w.id == c.Run {
						require.Equal(t, "waiting", w.offer)
						w.offer, w.expired, w.command = "sent", false, c
						require.Equal(t, w.desired == "cancel", c.Cancel)
					}
				}
			}
			for _, w := range m.all {
				require.NotEqual(t, "waiting", w.offer, "all that is due is admitted")
			}
		},
		"accept": func(t *rapid.T) {
			_, w := m.pick(t)
			if w.command.Run == uuid.Nil {
				t.Skip("no command was sent")
			}
			mine, err := m.f.db.Accept(ctx, w.command, holder, time.Minute)
			require.NoError(t, err)
			require.Equal(t, w.offer == "sent", mine)
			if mine {
				w.offer, w.expired = "accepted", false
			}
		},
		"begin": func(t *rapid.T) {
			_, w := m.pick(t)
			if w.offer != "accepted" || w.leased {
				t.Skip("nothing to begin with")
			}
			w.st = m.f.db.RunState(m.f.a.Organization, w.id)
			r := m.f.get(w.id)
			installation, err := w.st.Installation(ctx)
			require.NoError(t, err)
			_, _, err = w.st.StartRun(ctx, engine.StartRequest{Version: r.Hash,
				Route: engine.Route{Installation: installation, Pipeline: r.Name, Source: "src", Sink: "dst"}})
			require.NoError(t, err)
			w.lease, err = w.st.Acquire(ctx, w.id, 0, holder, time.Minute)
			require.NoError(t, err)
			w.state, w.leased, w.late, w.offer, w.expired = "running", true, false, "none", false
			w.attempts++
		},
		"hand over": func(t *rapid.T) {
			_, w := m.pick(t)
			if !w.leased {
				t.Skip("no lease")
			}
			require.NoError(t, w.st.EndAttempt(ctx, w.lease, nil))
			w.leased = false
			if rapid.Bool().Draw(t, "crash") {
				return // before the next attempt is offered
			}
			require.NoError(t, m.f.db.Settle(ctx, m.ref(w), runs.Idle))
			w.settle()
		},
		"finish": func(t *rapid.T) {
			_, w := m.pick(t)
			if !w.leased {
				t.Skip("no lease")
			}
			state := rapid.SampledFrom([]engine.RunState{"completed", "failed", "canceled", "paused"}).Draw(t, "state")
			m.f.finish(w.st, w.lease, state)
			desired := w.desired
			w.end(state)
			w.resumable, w.leased, w.desired = state == "failed", false, desired
		},
		"fail retryably": func(t *rapid.T) {
			_, w := m.pick(t)
			if !w.leased {
				t.Skip("no lease")
			}
			require.NoError(t, w.st.EndAttempt(ctx, w.lease, nil))
			require.NoError(t, m.f.db.Settle(ctx, m.ref(w), func(r *runs.Run) runs.Change {
				return runs.Failed(r, runs.Failure{Class: engine.Retryable, Error: "lost", Resumable: true}, 0)
			}))
			w.leased = false
			switch {
			case w.desired == "cancel":
				w.end("canceled")
			case w.desired == "run" && w.failures+1 < 2:
				w.failures++
				w.offerNow()
				time.Sleep(2 * time.Millisecond) // until it is due
			default:
				w.end("failed")
				w.failures++
				w.resumable = true
			}
		},
		"time passes": func(t *rapid.T) {
			_, w := m.pick(t)
			m.f.expire(w.id)
			w.late = w.leased
			w.expired = w.offer == "sent" || w.offer == "accepted"
		},
		"sweep": func(t *rapid.T) {
			m.f.sweep()
			for _, w := range m.all {
				if w.expired {
					w.offerNow()
				}
				if w.leased && w.late {
					w.leased, w.late = false, false
					w.interruptions++
					if w.interruptions >= 3 && w.desired != "cancel" && w.state == "running" {
						w.end("failed")
						w.resumable = true
						continue
					}
				}
				w.settle()
			}
		},
	}
}

func (m *machine) ref(w *wanted) sweep.Ref {
	return sweep.Ref{Organization: m.f.a.Organization, Run: w.id}
}

func (m *machine) resumed(w *wanted) {
	w.state = "running"
	if w.attempts == 0 {
		w.state = "requested"
	}
	w.desired, w.resumable, w.failures, w.interruptions = "run", false, 0, 0
	w.offerNow()
}

// check compares every run with its model, and what must hold at any moment.
func (m *machine) check(t *rapid.T) {
	for _, w := range m.all {
		r := m.f.get(w.id)
		got := fmt.Sprint(r.State, r.Desired, r.Resumable, " busy ", r.Busy, " offered ", r.Offered, r.Attempts, r.Failures, r.Interruptions)
		want := fmt.Sprint(w.state, w.desired, w.resumable, " busy ", w.busy(), " offered ", w.offer != "none", w.attempts, w.failures, w.interruptions)
		if got != want {
			t.Fatalf("run %s is %s, wanted %s", w.id, got, want)
		}
		m.f.facts(w.id) // without gaps
	}
	require.NoError(t, m.f.db.Maintain(context.Background(), func(ctx context.Context, tx Tx) error {
		var open, armed bool
		if err := tx.QueryRow(ctx, `SELECT open_work(), (SELECT armed FROM arming)`).Scan(&open, &armed); err != nil {
			return err
		}
		require.False(t, open && !armed, "there is work and nothing is armed (P23)")
		return nil
	}))
}

// TestModel: random requests, workers, crashes and sweeps do to the store what
// they do to the model.
func TestModel(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	n := 0
	rapid.Check(t, func(t2 *rapid.T) {
		n++
		m := &machine{f: newFleet(t, d, fmt.Sprint("model-", n)), latest: map[string]*wanted{}}
		for _, name := range modelPipelines {
			m.f.pipeline(name)
		}
		actions := m.actions()
		actions[""] = m.check
		t2.Repeat(actions)
	})
}
