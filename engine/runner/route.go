package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// findRoute asks State and destination who we are (P1).
func (r *run) findRoute(ctx context.Context) error {
	own, err := r.State.Installation(ctx)
	if err != nil {
		return fmt.Errorf("read installation: %w", err)
	}
	r.route = engine.Route{Installation: own, Pipeline: r.Pipeline, Source: r.src.Identity(), Sink: r.sink.Identity()}
	installation, remembered, err := r.State.RouteKnown(ctx, r.route)
	if err != nil {
		return fmt.Errorf("look up route: %w", err)
	}
	if remembered {
		r.route.Installation = installation
	}
	found, err := r.adoptions(ctx)
	if err != nil {
		return err
	}
	if remembered {
		if r.known = pick(found, installation); r.known == nil && len(found) > 0 {
			// Ours wrote nothing there and another one did: going on as if the
			// destination were empty would double its rows (P1).
			return engine.Permanentf("move this state file away to go on from what the destination has, or use the state file of that installation",
				"this state file knows pipeline %q as installation %s, the destination only as %s", r.Pipeline, installation, candidates(found))
		}
		return r.adoptUnknownRun(ctx)
	}
	switch len(found) {
	case 0:
		return nil
	case 1:
		r.known = &found[0]
		r.route.Installation = found[0].Installation
		r.Log.Info("adopting the route from the destination", "installation", found[0].Installation, "run", found[0].RunID)
		if err := r.State.AdoptRoute(ctx, r.route, adoptedVersion, found[0]); err != nil {
			return fmt.Errorf("adopt route: %w", err)
		}
		return nil
	}
	return engine.Permanentf("restore the state file of the installation that should go on, or drop the ledger rows of the others",
		"the destination knows pipeline %q under %d installations and this state file is none of them: %s", r.Pipeline, len(found), candidates(found))
}

// candidates names the installations that the destination knows.
func candidates(found []engine.Adoption) string {
	names := make([]string, len(found))
	for i, a := range found {
		names[i] = fmt.Sprintf("%s (run %s, ordinal %d)", a.Installation, a.RunID, a.Ordinal)
	}
	return strings.Join(names, ", ")
}

// unpublished tells whether the destination's last run has a resource that was
// planned and not published.
func (r *run) unpublished() bool {
	for _, ar := range r.known.Resources {
		if ar.RunID == r.known.RunID && ar.Plan != nil && !ar.Published {
			return true
		}
	}
	return false
}

// adoptUnknownRun takes over a run that the destination has seen and State, set
// back to an older copy, has not, or that State has as completed and the
// destination, set back, has not: what it appended stays and must be known (P1, P3, P21).
func (r *run) adoptUnknownRun(ctx context.Context) error {
	if r.known == nil || r.known.RunID == "" {
		return nil
	}
	runs, err := r.State.ListRuns(ctx, r.Pipeline, 0)
	if err != nil {
		return fmt.Errorf("list runs: %w", err)
	}
	for _, have := range runs {
		if have.ID.String() != r.known.RunID {
			continue
		}
		if have.State != engine.StateCompleted || !r.unpublished() {
			return nil
		}
		// The destination was set back into the run: it goes on from there (P3).
	}
	r.Log.Warn("adopting a run from the destination that State does not know so", "run", r.known.RunID, "ordinal", r.known.Ordinal)
	if err := r.State.AdoptRoute(ctx, r.route, adoptedVersion, *r.known); err != nil {
		return fmt.Errorf("adopt run %s: %w", r.known.RunID, err)
	}
	return nil
}

// adoptedVersion is the document version of runs taken over from a destination:
// the document that they were made from is not known.
const adoptedVersion = "adopted"

func (r *run) adoptions(ctx context.Context) ([]engine.Adoption, error) {
	adopter, ok := r.sink.(engine.Adopter)
	if !ok {
		return nil, nil
	}
	var found []engine.Adoption
	err := r.retry(ctx, "read the destination's ledger", func(ctx context.Context) error {
		var err error
		found, err = adopter.Adopt(ctx, r.route)
		return err
	})
	return found, err
}

// finishPredecessor completes an older unfinished run whose appended rows stay:
// a new run would not know them (P21).
func (r *run) finishPredecessor(ctx context.Context) error {
	runs, err := r.State.ListRuns(ctx, r.Pipeline, 20)
	if err != nil {
		return fmt.Errorf("list runs: %w", err)
	}
	for _, old := range runs {
		if old.Route != r.route {
			continue
		}
		open := old.State == engine.StateRunning || old.State == engine.StatePaused || old.State == engine.StateFailed && old.Resumable
		if !open {
			continue
		}
		if old.Version == r.Version && !r.Restart || r.overtaken(old) {
			return nil
		}
		stands, err := r.appendedRows(ctx, old)
		if err != nil || stands == 0 {
			return err
		}
		if r.OneAttempt {
			// This State knows the worker's own run alone.
			return engine.Permanentf("resume that run and let it end before a new one begins",
				"run %s of pipeline %q is unfinished and has appended %d rows that stand: %w", old.ID, r.Pipeline, stands, engine.ErrUnfinished)
		}
		r.Log.Info("finishing the unfinished run first, since its appended rows stay", "run", old.ID, "rows", stands)
		if _, err := r.startAndWork(ctx, old.Version, false); err != nil {
			return engine.Permanentf("let the unfinished run end (correct what it fails on) before a new one begins",
				"run %s of pipeline %q has appended %d rows that stay, and could not be finished: %w", old.ID, r.Pipeline, stands, err)
		}
		select {
		case <-r.Stop:
			return engine.Permanentf("", "stopped while finishing run %s", old.ID)
		default:
		}
		return r.refreshKnown(ctx)
	}
	return nil
}

// refreshKnown asks the destination again what it knows of the route.
func (r *run) refreshKnown(ctx context.Context) error {
	found, err := r.adoptions(ctx)
	if err != nil {
		return err
	}
	r.known = pick(found, r.route.Installation)
	return nil
}

// pick returns what is known under the installation, or nil.
func pick(found []engine.Adoption, installation string) *engine.Adoption {
	for i := range found {
		if found[i].Installation == installation {
			return &found[i]
		}
	}
	return nil
}

// overtaken tells whether the destination has seen a later run than this one:
// State was restored from an older copy, or another State went on (P1, P21).
func (r *run) overtaken(old engine.Run) bool {
	if r.known == nil {
		return false
	}
	return r.known.Ordinal > old.Ordinal || r.known.Ordinal == old.Ordinal && r.known.RunID != "" && r.known.RunID != old.ID.String()
}

// appendedRows counts rows that an unfinished run has appended to live targets.
func (r *run) appendedRows(ctx context.Context, old engine.Run) (int64, error) {
	plan, err := r.State.LoadPlan(ctx, old.ID)
	if err != nil || plan == nil {
		return 0, err
	}
	var n int64
	direct := map[string]bool{}
	for _, rp := range plan.Resources {
		direct[rp.Selection.Resource] = rp.Write == engine.WriteAppend && !rp.Target.Staged
	}
	splits, err := r.State.Splits(ctx, old.ID)
	if err != nil {
		return 0, err
	}
	published := map[string]bool{}
	for _, s := range splits {
		if s.Kind == engine.SplitPublish && s.Done {
			published[s.Resource] = true
		}
	}
	for _, s := range splits {
		if direct[s.Resource] && !published[s.Resource] {
			n += s.Totals.Applied
		}
	}
	if r.known != nil && r.known.RunID == old.ID.String() {
		var ledger int64
		for _, ar := range r.known.Resources {
			if direct[ar.Resource] && !ar.Published {
				for _, e := range ar.Ledger {
					ledger += e.Totals.Applied
				}
			}
		}
		n = max(n, ledger)
	}
	return n, nil
}

// unsettled tells whether State and destination have to be brought together.
func unsettled(err error) bool {
	return errors.Is(err, engine.ErrPlanVoid) || errors.Is(err, engine.ErrLedgerBehind) || errors.Is(err, engine.ErrUnfinished)
}

// settle makes State follow the destination: it begins a new run in the place of
// one whose plan is void; takes plan and progress from the destination (P3); or
// first finishes the run whose rows stand there (P21).
func (r *run) settle(ctx context.Context, req engine.StartRequest, rec engine.Run, cause error) (engine.Run, error) {
	if errors.Is(cause, engine.ErrPlanVoid) {
		req.Restart = true
	} else {
		if err := r.refreshKnown(ctx); err != nil {
			return rec, err
		}
		a, ok := r.openAtDestination(rec.ID.String(), errors.Is(cause, engine.ErrLedgerBehind))
		if !ok {
			return rec, cause
		}
		if err := r.State.AdoptRoute(ctx, r.route, adoptedVersion, a); err != nil {
			return rec, errors.Join(cause, fmt.Errorf("adopt run %s: %w", a.RunID, err))
		}
		if err := r.finishPredecessor(ctx); err != nil {
			return rec, err
		}
	}
	rec, _, err := r.State.StartRun(ctx, req)
	if err != nil {
		return rec, fmt.Errorf("start run: %w", err)
	}
	return rec, nil
}

// openAtDestination returns what the destination knows of this run, or of the
// latest other one that is not published there.
func (r *run) openAtDestination(runID string, own bool) (a engine.Adoption, ok bool) {
	if r.known == nil {
		return a, false
	}
	a = *r.known
	a.RunID, a.Ordinal = "", 0
	for _, ar := range r.known.Resources {
		if (ar.RunID == runID) == own && ar.Plan != nil && (own || !ar.Published) && ar.Ordinal >= a.Ordinal {
			a.RunID, a.Ordinal, ok = ar.RunID, ar.Ordinal, true
		}
	}
	return a, ok
}
