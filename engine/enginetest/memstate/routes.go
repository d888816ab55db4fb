package memstate

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
)

// route finds or makes a route.
func (d *data) route(r engine.Route) *routeRec {
	key := keyOf(r)
	rt := d.routes[key]
	if rt == nil {
		rt = &routeRec{installation: r.Installation, cursors: map[string]cursorRec{}}
		if rt.installation == "" {
			rt.installation = d.installation
		}
		d.routes[key] = rt
	}
	return rt
}

// full returns the route with its stored installation.
func (d *data) full(key routeKey) engine.Route {
	return engine.Route{Installation: d.routes[key].installation, Pipeline: key.pipeline, Source: key.source, Sink: key.sink}
}

// Installation implements [engine.RunStore].
func (s *Store) Installation(ctx context.Context) (string, error) {
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.m.mu.Unlock()
	return s.m.data.installation, nil
}

// RouteKnown implements [engine.RunStore].
func (s *Store) RouteKnown(ctx context.Context, r engine.Route) (string, bool, error) {
	if err := s.enter(ctx); err != nil {
		return "", false, err
	}
	defer s.m.mu.Unlock()
	rt := s.m.data.routes[keyOf(r)]
	if rt == nil {
		return "", false, nil
	}
	return rt.installation, true, nil
}

// Cursor implements [engine.RunStore].
func (s *Store) Cursor(ctx context.Context, r engine.Route, resource string) (engine.RouteCursor, error) {
	if err := s.enter(ctx); err != nil {
		return engine.RouteCursor{}, err
	}
	defer s.m.mu.Unlock()
	rt := s.m.data.routes[keyOf(r)]
	if rt == nil {
		return engine.RouteCursor{}, nil
	}
	c := rt.cursors[resource]
	return engine.RouteCursor{Cursor: slices.Clone(c.cursor), Seen: slices.Clone(c.seen), Reset: c.reset > 0}, nil
}

// ResetResource implements [engine.RunStore].
func (s *Store) ResetResource(ctx context.Context, r engine.Route, resource string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.m.mu.Unlock()
	key := keyOf(r)
	if s.m.locks[key] != nil {
		return engine.Permanentf("wait until its run ends", "reset %q: pipeline %q: %w", resource, r.Pipeline, engine.ErrLocked)
	}
	if rt := s.m.data.routes[key]; rt != nil {
		rt.cursors[resource] = cursorRec{reset: rt.last}
	}
	return nil
}

// AdoptRoute implements [engine.RunStore].
func (s *Store) AdoptRoute(ctx context.Context, r engine.Route, version string, a engine.Adoption) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.m.mu.Unlock()
	d := s.m.data
	if rt := d.routes[keyOf(r)]; rt != nil && rt.installation != a.Installation {
		return engine.Permanentf("use the state file of that installation",
			"adopt pipeline %q: this state knows it as installation %s, the destination says %s", r.Pipeline, rt.installation, a.Installation)
	}
	done, err := s.lockIdle(keyOf(r))
	if err != nil {
		return err
	}
	defer done()
	r.Installation = a.Installation
	rt := d.route(r)
	rt.last = max(rt.last, a.Ordinal)
	var rest []engine.AdoptedResource
	pending := false
	for _, ar := range a.Resources {
		rt.last = max(rt.last, ar.Ordinal)
		// A resource that the user has reset stays reset.
		if len(ar.Cursor) > 0 && rt.cursors[ar.Resource].reset == 0 {
			rt.cursors[ar.Resource] = cursorRec{cursor: slices.Clone(ar.Cursor), seen: slices.Clone(ar.Seen)}
		}
		if ar.RunID == a.RunID && ar.Plan != nil {
			rest = append(rest, ar)
			pending = pending || !ar.Published
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return s.adoptRun(keyOf(r), version, a, rest, pending)
}

// lockIdle locks a route of which no worker is alive, for one call.
func (s *Store) lockIdle(key routeKey) (done func(), err error) {
	taken, err := s.lock(key)
	if err != nil {
		return nil, err
	}
	if taken {
		// Whoever had leases is dead.
		return func() { delete(s.m.locks, key) }, nil
	}
	for _, r := range s.m.data.runs {
		for _, sl := range r.slots {
			if r.route == key && sl.live(s.m.opt.Now()) {
				return nil, engine.Permanentf("wait until it ends or stop it", "run %s of pipeline %q has live workers: %w", r.run.ID, key.pipeline, engine.ErrLocked)
			}
		}
	}
	return func() {}, nil
}

// adoptRun makes the destination's run ours, at its progress.
func (s *Store) adoptRun(key routeKey, version string, a engine.Adoption, resources []engine.AdoptedResource, pending bool) error {
	runID, err := uuid.Parse(a.RunID)
	if err != nil {
		return engine.Bugf("adopt run %q: %w", a.RunID, err)
	}
	d, now := s.m.data, s.m.opt.Now().UTC()
	run := d.find(runID)
	if !pending && (run == nil || !run.open()) {
		return nil
	}
	ordinal, latest := a.Ordinal, d.routes[key]
	if run != nil {
		ordinal = run.run.Ordinal
	}
	for _, r := range d.runs {
		if r.route != key || r.run.ID == runID {
			continue
		}
		if r.run.Ordinal == ordinal {
			ordinal = 0
		}
		if r.open() {
			r.voidLeases()
			if err := s.supersede(r, runID); err != nil {
				return err
			}
		}
	}
	if ordinal < latest.last {
		latest.last++
		ordinal = latest.last
	}
	for name, c := range latest.cursors {
		if c.reset > 0 { // The run was planned before any reset that stands.
			c.reset = max(c.reset, ordinal)
			latest.cursors[name] = c
		}
	}
	if run == nil {
		run = &runRec{route: key, slots: map[int]slotRec{}, known: map[uuid.UUID]bool{}, run: engine.Run{
			ID: runID, Route: d.full(key), Version: version, CreatedAt: now, StartedAt: now}}
		d.runs = append(d.runs, run)
	}
	run.voidLeases()
	run.desired, run.planned, run.resources, run.splits = engine.DesiredRun, true, nil, nil
	u := &run.run
	u.Ordinal, u.State, u.Resumable, u.EndedAt, u.Error = ordinal, engine.StateFailed, true, now, "interrupted; adopted from the destination"
	for _, ar := range resources {
		if err := run.addResource(ar.Plan, 0); err != nil {
			return err
		}
		for _, e := range ar.Ledger {
			if sp := run.split(e.Split); sp != nil {
				sp.Claim, sp.Epoch, sp.Position, sp.done, sp.Totals = e.Claim, e.Epoch, slices.Clone(e.Position), e.Done, copyTotals(e.Totals)
			}
		}
		for _, sp := range run.splits {
			// Published means that every split is done, whatever rows the ledger kept.
			sp.done = sp.done || ar.Published && sp.Resource == ar.Resource
		}
	}
	return nil
}

func copyTotals(t engine.Totals) engine.Totals {
	t.Policies = slices.Clone(t.Policies)
	return t
}
