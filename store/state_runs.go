package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/store/internal/db"
)

// StartRun implements [engine.RunStore]. An unfinished run that somebody asked
// to cancel while nobody worked on it is canceled, not resumed.
func (s *State) StartRun(ctx context.Context, req engine.StartRequest) (run engine.Run, resumed bool, err error) {
	what := fmt.Sprintf("start a run of pipeline %q", req.Route.Pipeline)
	err = s.update(ctx, what, func(t *stateTx) error {
		id, again, err := t.startRun(what, req)
		if err != nil {
			return err
		}
		resumed = again
		run, err = t.run(id)
		return err
	})
	if err != nil {
		return engine.Run{}, false, err
	}
	return run, resumed, nil
}

func (t *stateTx) startRun(what string, req engine.StartRequest) (id uuid.UUID, resumed bool, err error) {
	route, err := t.ensureRoute(req.Route)
	if err != nil {
		return id, false, err
	}
	open, err := t.openRuns(route.ID, uuid.Nil)
	if err != nil {
		return id, false, err
	}
	if err := idle(what, open); err != nil {
		return id, false, err
	}
	if id, err = uuid.NewV7(); err != nil {
		return id, false, err
	}
	var resume *db.ListOpenRunsRow
	for i, u := range open {
		// Only the route's latest run can go on (P21).
		if i == 0 && !req.Restart && u.Version == req.Version && engine.Desired(u.Desired) != engine.DesiredCancel && u.Ordinal >= route.LastOrdinal {
			resume = &open[i]
			continue
		}
		if err := t.supersede(u, id); err != nil {
			return id, false, err
		}
	}
	if resume != nil {
		if err := t.voidLeases(resume.ID); err != nil {
			return id, false, err
		}
		return resume.ID, true, t.q.StartRun(t.ctx, resume.ID)
	}
	ordinal := max(route.LastOrdinal, req.AtLeastOrdinal) + 1
	if err := t.raiseRoute(&route, ordinal); err != nil {
		return id, false, err
	}
	return id, false, t.q.InsertEngineRun(t.ctx, db.InsertEngineRunParams{
		ID: id, PipelineName: req.Route.Pipeline, Version: req.Version, Route: route.ID, Ordinal: ordinal, State: string(engine.StateRunning),
	})
}

// voidLeases ends what earlier workers hold: their numbers are overtaken, those
// of slots given back too, and their splits are nobody's (invariant 2).
func (t *stateTx) voidLeases(run uuid.UUID) error {
	if err := t.q.VoidSlots(t.ctx, run); err != nil {
		return err
	}
	return t.q.ReturnRunSplits(t.ctx, run)
}

// supersede ends an unfinished run for good: failed and not resumable, or
// canceled if that was asked for while nobody worked on it.
func (t *stateTx) supersede(u db.ListOpenRunsRow, by uuid.UUID) error {
	if err := t.voidLeases(u.ID); err != nil {
		return err
	}
	if engine.Desired(u.Desired) == engine.DesiredCancel {
		return t.end(u.ID, engine.StateCanceled, "", "", events.RunCanceled{Reason: "asked for while no process worked on it"})
	}
	text := fmt.Sprintf("superseded by run %s", by)
	return t.end(u.ID, engine.StateFailed, text, engine.Permanent, events.RunFailed{Class: string(engine.Permanent), Error: text})
}

// end moves a run that nobody works on to a final state, with its fact.
func (t *stateTx) end(run uuid.UUID, state engine.RunState, text string, class engine.Class, p events.Payload) error {
	if err := t.q.EndRun(t.ctx, db.EndRunParams{ID: run, State: string(state), Error: text, ErrorClass: string(class)}); err != nil {
		return err
	}
	return t.AddFact(t.ctx, run, p)
}

// RaiseOrdinal implements [engine.RunStore]: the ordinal becomes greater than
// atLeast and than every ordinal of the route; it stays if it is that already.
func (s *State) RaiseOrdinal(ctx context.Context, runID uuid.UUID, atLeast int64) (run engine.Run, err error) {
	err = s.update(ctx, fmt.Sprintf("raise the ordinal of run %s", runID), func(t *stateTx) error {
		// The route is locked before its runs; a run keeps its route.
		before, err := t.q.GetRun(t.ctx, runID)
		if none(err) {
			return unknownRun(runID)
		}
		if err != nil {
			return err
		}
		if before.Run.Route == nil {
			return engine.Bugf("raise the ordinal of run %s: it was not started", runID)
		}
		route, err := t.q.LockRouteByID(t.ctx, *before.Run.Route)
		if err != nil {
			return err
		}
		r, err := t.lockRun(runID)
		if err != nil {
			return err
		}
		if engine.RunState(r.State) != engine.StateRunning {
			return fmt.Errorf("it is %s: %w", r.State, &engine.StaleError{What: "generation", Subject: "run " + runID.String()})
		}
		if *r.Ordinal <= atLeast {
			if r.Planned {
				return engine.Bugf("raise the ordinal of run %s: its plan is frozen with ordinal %d", runID, *r.Ordinal)
			}
			ordinal := max(route.LastOrdinal, atLeast) + 1
			if err := t.raiseRoute(&route, ordinal); err != nil {
				return err
			}
			if err := t.q.SetRunOrdinal(t.ctx, db.SetRunOrdinalParams{ID: runID, Ordinal: ordinal}); err != nil {
				return err
			}
		}
		run, err = t.run(runID)
		return err
	})
	return run, err
}

// FinishRun implements [engine.RunStore]. It also frees the caller's slot, whose
// attempt is over with the run. Repeating it with the same state changes
// nothing.
func (s *State) FinishRun(ctx context.Context, f engine.Fence, end engine.RunEnd) error {
	return s.update(ctx, fmt.Sprintf("finish run %s", f.RunID), func(t *stateTx) error {
		r, err := t.fence(f)
		if err != nil {
			return err
		}
		switch end.State {
		case engine.StateCompleted, engine.StateFailed, engine.StateCanceled, engine.StatePaused:
		default:
			return engine.Bugf("finish run %s: %q is no end of a run", f.RunID, end.State)
		}
		if have := engine.RunState(r.State); have != engine.StateRunning && have != end.State {
			return engine.Bugf("finish run %s as %s: it is %s", f.RunID, end.State, have)
		}
		if err := t.q.EndRun(t.ctx, db.EndRunParams{
			ID: f.RunID, State: string(end.State), Resumable: end.Resumable && end.State == engine.StateFailed,
			Error: clean(end.Error), ErrorClass: failureClass(end), Receipt: end.Receipt,
		}); err != nil {
			return err
		}
		if end.State == engine.StateCompleted {
			// Published rows are remembered with the cursor.
			if err := t.q.DeleteSeenRows(t.ctx, db.DeleteSeenRowsParams{Run: f.RunID}); err != nil {
				return err
			}
		}
		if err := t.AddFacts(t.ctx, f.RunID, end.Facts...); err != nil {
			return err
		}
		t.Hint(Hint{Kind: HintFacts, Organization: s.org, Object: f.RunID})
		return t.freeSlot(f)
	})
}

// failureClass is the class that the run's last fact tells.
func failureClass(end engine.RunEnd) string {
	if end.State != engine.StateFailed {
		return ""
	}
	for _, f := range end.Facts {
		if f.Type != events.TypeRunFailed {
			continue
		}
		if p, err := f.Decode(); err == nil {
			if failed, ok := p.(*events.RunFailed); ok {
				return failed.Class
			}
		}
	}
	return ""
}

func (t *stateTx) run(id uuid.UUID) (engine.Run, error) {
	row, err := t.q.GetRun(t.ctx, id)
	return runOf(row), err
}

func runOf(r db.GetRunRow) engine.Run {
	run := engine.Run{
		ID: r.Run.ID, Version: r.Run.Version, State: engine.RunState(r.Run.State), Resumable: r.Run.Resumable, Error: r.Run.Error,
		Route:     engine.Route{Installation: r.Installation, Pipeline: r.Run.PipelineName, Source: r.Source, Sink: r.Sink},
		CreatedAt: r.Run.CreatedAt.UTC(), StartedAt: moment(r.Run.StartedAt), EndedAt: moment(r.Run.EndedAt),
		Attempts: int(r.Run.Attempts), Receipt: r.Run.Receipt,
	}
	if r.Run.Ordinal != nil {
		run.Ordinal = *r.Run.Ordinal
	}
	return run
}

// moment is the zero time for none.
func moment(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// GetRun implements [engine.RunStore]; an unknown run is a permanent error.
func (s *State) GetRun(ctx context.Context, runID uuid.UUID) (run engine.Run, err error) {
	err = s.alone(ctx, fmt.Sprintf("read run %s", runID), func(q *db.Queries) error {
		row, err := q.GetRun(ctx, runID)
		if none(err) {
			return unknownRun(runID)
		}
		run = runOf(row)
		return err
	})
	return run, err
}

// ListRuns implements [engine.RunStore]; a limit of 0 or less means all.
func (s *State) ListRuns(ctx context.Context, pipeline string, limit int) ([]engine.Run, error) {
	if limit <= 0 || limit > math.MaxInt32 {
		limit = math.MaxInt32
	}
	var runs []engine.Run
	err := s.alone(ctx, "list runs", func(q *db.Queries) error {
		runs = nil
		if pipeline == "" {
			rows, err := q.ListEngineRuns(ctx, int32(limit))
			for _, r := range rows {
				runs = append(runs, runOf(db.GetRunRow(r)))
			}
			return err
		}
		rows, err := q.ListEngineRunsOfPipeline(ctx, db.ListEngineRunsOfPipelineParams{PipelineName: pipeline, Limit: int32(limit)})
		for _, r := range rows {
			runs = append(runs, runOf(db.GetRunRow(r)))
		}
		return err
	})
	return runs, err
}
