package memstate

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

type routeKey struct{ pipeline, source, sink string }

func keyOf(r engine.Route) routeKey { return routeKey{r.Pipeline, r.Source, r.Sink} }

// data is all that the State remembers.
type data struct {
	installation string
	routes       map[routeKey]*routeRec
	// runs are in the order in which they were made.
	runs []*runRec
}

// routeRec is what a route carries from run to run.
type routeRec struct {
	installation string
	last         int64
	cursors      map[string]cursorRec
}

type cursorRec struct {
	cursor []byte
	seen   []engine.RowID
	// reset, if not 0, is the ordinal up to which runs store no cursor any more.
	reset int64
}

type runRec struct {
	run       engine.Run
	route     routeKey
	desired   engine.Desired
	planned   bool
	resources []*resourceRec
	splits    []*splitRec
	slots     map[int]slotRec
	facts     []events.Fact
	known     map[uuid.UUID]bool
}

type resourceRec struct {
	name       string
	generation int
	plan       []byte
	artifacts  map[string]engine.Artifact
	seen       map[engine.RowID]struct{}
}

type splitRec struct {
	engine.ClaimedSplit
	done bool
	// owned is true while a slot's lease generation has it.
	owned bool
	owner int
	lease int64
}

type slotRec struct {
	generation int64
	// holder is empty when the slot is free.
	holder  string
	expires time.Time
}

func (s slotRec) live(now time.Time) bool { return s.holder != "" && s.expires.After(now) }

// clone copies everything that can change.
func (d *data) clone() *data {
	c := &data{installation: d.installation, routes: make(map[routeKey]*routeRec, len(d.routes)), runs: make([]*runRec, len(d.runs))}
	for k, r := range d.routes {
		c.routes[k] = &routeRec{installation: r.installation, last: r.last, cursors: maps.Clone(r.cursors)}
	}
	for i, r := range d.runs {
		n := *r
		n.facts = slices.Clone(r.facts)
		n.known = maps.Clone(r.known)
		n.slots = maps.Clone(r.slots)
		n.resources = make([]*resourceRec, len(r.resources))
		for j, res := range r.resources {
			m := *res
			m.artifacts, m.seen = maps.Clone(res.artifacts), maps.Clone(res.seen)
			n.resources[j] = &m
		}
		n.splits = make([]*splitRec, len(r.splits))
		for j, sp := range r.splits {
			m := *sp
			n.splits[j] = &m
		}
		c.runs[i] = &n
	}
	return c
}

func (d *data) find(id uuid.UUID) *runRec {
	for _, r := range d.runs {
		if r.run.ID == id {
			return r
		}
	}
	return nil
}

func (r *runRec) resource(name string) *resourceRec {
	for _, res := range r.resources {
		if res.name == name {
			return res
		}
	}
	return nil
}

func (r *runRec) split(id string) *splitRec {
	for _, sp := range r.splits {
		if sp.ID == id {
			return sp
		}
	}
	return nil
}

// ownedNow tells whether a slot whose lease lives has the split.
func (r *runRec) ownedNow(sp *splitRec, now time.Time) bool {
	sl := r.slots[sp.owner]
	return sp.owned && sl.generation == sp.lease && sl.live(now)
}

// open tells whether the run may go on.
func (r *runRec) open() bool {
	switch r.run.State {
	case engine.StateScheduled, engine.StateRequested, engine.StateRunning, engine.StatePaused:
		return true
	}
	return r.run.State == engine.StateFailed && r.run.Resumable
}

// voidLeases ends what earlier workers hold (invariant 2).
func (r *runRec) voidLeases() {
	for n, sl := range r.slots {
		r.slots[n] = slotRec{generation: sl.generation + 1}
	}
	for _, sp := range r.splits {
		sp.owned = false
	}
}

// freeSlot ends a lease and gives its splits back.
func (r *runRec) freeSlot(f engine.Fence) {
	r.slots[f.Slot] = slotRec{generation: f.Generation}
	for _, sp := range r.splits {
		if sp.owner == f.Slot && sp.lease == f.Generation {
			sp.owned = false
		}
	}
}

// checkFacts refuses facts of other runs, before anything is changed.
func (r *runRec) checkFacts(facts []events.Fact) error {
	for _, f := range facts {
		if f.RunID != r.run.ID {
			return engine.Bugf("store fact %s %s: it belongs to run %s, not %s", f.Type, f.ID, f.RunID, r.run.ID)
		}
	}
	return nil
}

// addFacts numbers facts without gaps; one that is there already is left out (invariant 4).
func (r *runRec) addFacts(facts []events.Fact) {
	for _, f := range facts {
		if r.known[f.ID] {
			continue
		}
		r.known[f.ID] = true
		f.Number = int64(len(r.facts)) + 1
		f.Payload = bytes.Clone(f.Payload)
		r.facts = append(r.facts, f)
	}
}
