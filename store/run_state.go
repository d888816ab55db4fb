package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/store/internal/db"
)

// RunState is the engine's state for a worker of one run that the control plane
// has accepted: it starts that run and no other.
type RunState struct {
	*State
	run uuid.UUID
}

// RunState returns the engine's state for a worker of a run.
func (d *DB) RunState(organization, run uuid.UUID) *RunState {
	return &RunState{State: d.State(organization), run: run}
}

// StartRun implements [engine.RunStore]: it returns the worker's run, which
// becomes running if it was only requested, with its fact in the same
// transaction. Now that both ends are open, the run is linked to the engine's
// route and gets its ordinal, and other unfinished runs of the route are
// superseded (P21). *engine.StaleError: the run is neither requested nor running
// any more, or a later one of its route exists. A restart is refused, since a
// worker makes no runs; so is a run whose predecessor has appended rows that
// stand, which has to be finished first.
func (s *RunState) StartRun(ctx context.Context, req engine.StartRequest) (run engine.Run, resumed bool, err error) {
	what := fmt.Sprintf("start run %s", s.run)
	if req.Restart {
		return engine.Run{}, false, engine.Permanentf("start a new run of the pipeline",
			"%s: it cannot go on from what the destination has, and a worker begins no other run", what)
	}
	err = s.update(ctx, what, func(t *stateTx) error {
		route, err := t.ensureRoute(req.Route)
		if err != nil {
			return err
		}
		open, err := t.openRuns(route.ID, s.run)
		if err != nil {
			return err
		}
		own, err := t.q.LockRun(t.ctx, s.run)
		if none(err) {
			return s.stale("it is not here")
		}
		if err != nil {
			return err
		}
		if err := s.mayStart(own, route); err != nil {
			return err
		}
		if err := t.follow(what, s.run, open); err != nil {
			return err
		}
		state := engine.RunState(own.State)
		if resumed = own.Attempts > 0 || own.Planned; state == engine.StateRequested || own.Route == nil {
			if err := t.begin(own, &route, req); err != nil {
				return err
			}
		}
		run, err = t.run(s.run)
		return err
	})
	if err != nil {
		return engine.Run{}, false, err
	}
	return run, resumed, nil
}

// stale says that the run is not this worker's to start.
func (s *RunState) stale(why string) error {
	return fmt.Errorf("start run %s: %s: %w", s.run, why, &engine.StaleError{What: "generation", Subject: "run " + s.run.String()})
}

func (s *RunState) mayStart(own db.Run, route db.Route) error {
	switch state := engine.RunState(own.State); {
	case state != engine.StateRequested && state != engine.StateRunning:
		return s.stale("it is " + own.State)
	case own.PipelineName != route.Pipeline:
		return engine.Bugf("start run %s: it is of pipeline %q, not %q", s.run, own.PipelineName, route.Pipeline)
	case own.Route == nil:
		return nil
	case *own.Route != route.ID:
		return engine.Permanentf("start a new run of the pipeline", "start run %s: its source or destination is another one than when it began", s.run)
	case *own.Ordinal < route.LastOrdinal:
		return fmt.Errorf("start run %s: %w", s.run, &engine.StaleError{What: "ordinal", Subject: "run " + s.run.String(), Ours: *own.Ordinal, Have: route.LastOrdinal})
	}
	return nil
}

// follow supersedes the route's other unfinished runs (P21).
func (t *stateTx) follow(what string, own uuid.UUID, open []db.ListOpenRunsRow) error {
	var others []db.ListOpenRunsRow
	for _, u := range open {
		if u.ID != own {
			others = append(others, u)
		}
	}
	if err := idle(what, others); err != nil {
		return err
	}
	for _, u := range others {
		rows, err := t.q.CountStandingRows(t.ctx, u.ID)
		if err != nil {
			return err
		}
		if rows > 0 {
			return engine.Permanentf("resume that run and let it end before a new one begins",
				"%s: run %s is unfinished and has appended %d rows that stand: %w", what, u.ID, rows, engine.ErrUnfinished)
		}
		if err := t.supersede(u, own); err != nil {
			return err
		}
	}
	return nil
}

// begin makes the run running, and links it to its route the first time.
func (t *stateTx) begin(own db.Run, route *db.Route, req engine.StartRequest) error {
	ordinal := max(route.LastOrdinal, req.AtLeastOrdinal) + 1
	if own.Ordinal != nil {
		ordinal = *own.Ordinal
	} else if err := t.raiseRoute(route, ordinal); err != nil {
		return err
	}
	if err := t.q.BeginRun(t.ctx, db.BeginRunParams{ID: own.ID, Route: route.ID, Ordinal: ordinal}); err != nil {
		return err
	}
	if engine.RunState(own.State) != engine.StateRequested {
		return nil
	}
	t.Hint(Hint{Kind: HintFacts, Organization: own.Organization, Object: own.ID})
	return t.AddFact(t.ctx, own.ID, events.RunStarted{Slots: req.Slots})
}

// AdoptRoute implements [engine.RunStore]. The worker's own run stays what it is;
// another one that the destination knows is kept as failed and resumable.
func (s *RunState) AdoptRoute(ctx context.Context, r engine.Route, version string, a engine.Adoption) error {
	return s.adoptRoute(ctx, r, version, a, s.run)
}
