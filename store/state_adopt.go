package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/store/internal/db"
)

// AdoptRoute implements [engine.RunStore]. Adopting the same again changes
// nothing; adopting a route that is known under another installation is a
// permanent error. A resource that the user has reset stays reset, whatever the
// destination remembers of it.
func (s *State) AdoptRoute(ctx context.Context, r engine.Route, version string, a engine.Adoption) error {
	return s.adoptRoute(ctx, r, version, a, uuid.Nil)
}

// adoptRoute adopts for a run that is being worked on, unless it is nil: that one
// is neither superseded nor stopped.
func (s *State) adoptRoute(ctx context.Context, r engine.Route, version string, a engine.Adoption, adopter uuid.UUID) error {
	what := fmt.Sprintf("adopt pipeline %q", r.Pipeline)
	return s.update(ctx, what, func(t *stateTx) error {
		r.Installation = a.Installation
		route, err := t.ensureRoute(r)
		if err != nil {
			return err
		}
		if route.Installation != a.Installation {
			return engine.Permanentf("use the organization, or the state file, of that installation",
				"%s: it is known here as installation %s, the destination says %s", what, route.Installation, a.Installation)
		}
		open, err := t.openRuns(route.ID, adopter)
		if err != nil {
			return err
		}
		if err := idle(what, open); err != nil {
			return err
		}
		if err := t.raiseRoute(&route, a.Ordinal); err != nil {
			return err
		}
		ad := adoption{route: &route, open: open, version: version, Adoption: a, adopter: adopter}
		pending := false
		for _, ar := range a.Resources {
			if err := t.raiseRoute(&route, ar.Ordinal); err != nil {
				return err
			}
			if len(ar.Cursor) > 0 {
				if err := t.q.AdoptCursor(t.ctx, db.AdoptCursorParams{Route: route.ID, Resource: ar.Resource, Cursor: ar.Cursor, Seen: packIDs(ar.Seen)}); err != nil {
					return err
				}
			}
			if ar.RunID == a.RunID && ar.Plan != nil {
				ad.resources = append(ad.resources, ar)
				pending = pending || !ar.Published
			}
		}
		if len(ad.resources) == 0 {
			return nil
		}
		return t.adoptRun(ad, pending)
	})
}

// adoption is what a route's adoption needs to know.
type adoption struct {
	engine.Adoption
	route   *db.Route
	open    []db.ListOpenRunsRow
	version string
	adopter uuid.UUID
	// resources are those of the adopted run.
	resources []engine.AdoptedResource
}

// adoptRun makes the destination's run ours, as one that failed and can be
// resumed, at the ledger's progress. A run that we have already, and that the
// destination has otherwise because one of the two was set back (P1, P3), is put
// there too; one that is published whole only if it is unfinished here.
func (t *stateTx) adoptRun(a adoption, pending bool) error {
	runID, err := uuid.Parse(a.RunID)
	if err != nil {
		return engine.Bugf("adopt run %q: %w", a.RunID, err)
	}
	have, err := t.q.LockRun(t.ctx, runID)
	missing := none(err)
	if err != nil && !missing {
		return err
	}
	if have.Route != nil && *have.Route != a.route.ID {
		return engine.Bugf("adopt run %s: it is of another route", runID)
	}
	state := engine.RunState(have.State)
	unfinished := !missing && state != engine.StateCompleted && state != engine.StateCanceled && (state != engine.StateFailed || have.Resumable)
	if !pending && !unfinished {
		return nil
	}
	for _, u := range a.open {
		if u.ID == runID || u.ID == a.adopter {
			continue
		}
		if err := t.supersede(u, runID); err != nil {
			return err
		}
	}
	ordinal := a.Ordinal
	if have.Ordinal != nil {
		ordinal = *have.Ordinal
	}
	// Only the route's latest run can go on (P21).
	taken, err := t.q.OrdinalTaken(t.ctx, db.OrdinalTakenParams{Route: a.route.ID, Ordinal: ordinal, ID: runID})
	if err != nil {
		return err
	}
	if ordinal < a.route.LastOrdinal || taken {
		ordinal = a.route.LastOrdinal + 1
		if err := t.raiseRoute(a.route, ordinal); err != nil {
			return err
		}
	}
	// The run was planned before any reset that stands.
	if err := t.q.MoveResets(t.ctx, db.MoveResetsParams{Route: a.route.ID, Ordinal: ordinal}); err != nil {
		return err
	}
	if missing {
		if err := t.q.InsertAdoptedRun(t.ctx, db.InsertAdoptedRunParams{
			ID: runID, PipelineName: a.route.Pipeline, Version: a.version, Route: a.route.ID, Ordinal: ordinal, Adopter: a.adopter,
		}); err != nil {
			return err
		}
	}
	if err := t.voidLeases(runID); err != nil {
		return err
	}
	if err := t.dropResource(runID, nil); err != nil {
		return err
	}
	if err := t.q.AdoptRun(t.ctx, db.AdoptRunParams{ID: runID, Route: a.route.ID, Ordinal: ordinal, Keep: runID == a.adopter}); err != nil {
		return err
	}
	for i, ar := range a.resources {
		if err := t.adoptResource(runID, int32(i), ar); err != nil {
			return err
		}
	}
	return nil
}

// adoptResource takes a resource's plan and progress from the ledger.
func (t *stateTx) adoptResource(run uuid.UUID, seq int32, ar engine.AdoptedResource) error {
	if err := t.addResource(run, seq, ar.Plan, 0); err != nil {
		return err
	}
	for _, e := range ar.Ledger {
		totals, err := json.Marshal(e.Totals)
		if err != nil {
			return engine.Bugf("adopt split %q: %w", e.Split, err)
		}
		if err := t.q.AdoptSplit(t.ctx, db.AdoptSplitParams{
			Run: run, ID: e.Split, Claim: e.Claim, Epoch: e.Epoch, Position: document(e.Position), Done: e.Done, Totals: totals,
		}); err != nil {
			return err
		}
	}
	if !ar.Published {
		return nil
	}
	// Published means that every split is done, whatever rows the ledger kept.
	return t.q.AdoptPublished(t.ctx, db.AdoptPublishedParams{Run: run, Resource: ar.Resource})
}
