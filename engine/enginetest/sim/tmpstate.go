package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

type tmpState struct {
	mu sync.Mutex
	d  tmpData
}

type tmpSlot struct {
	gen     int64
	holder  string
	expires time.Time
}

type tmpSplit struct {
	engine.ClaimedSplit
	seq    int
	done   bool
	owner  int
	owngen int64
	hasOwn bool
}

type tmpRun struct {
	engine.Run
	planned   bool
	plan      []*engine.ResourcePlan
	splits    []tmpSplit
	slots     map[int]tmpSlot
	artifacts map[string][]engine.Artifact
	seen      map[string][]engine.RowID
	desired   engine.Desired
}

type tmpData struct {
	installation string
	known        bool
	adopted      string
	last         int64
	runs         []*tmpRun
	cursors      map[string]engine.RouteCursor
}

func newTmpState(installation string) *tmpState {
	return &tmpState{d: tmpData{installation: installation, adopted: installation, cursors: map[string]engine.RouteCursor{}}}
}

func (d tmpData) clone() tmpData {
	d.cursors = maps.Clone(d.cursors)
	d.runs = slices.Clone(d.runs)
	for i, r := range d.runs {
		c := *r
		c.plan, c.splits, c.slots = slices.Clone(r.plan), slices.Clone(r.splits), maps.Clone(r.slots)
		c.artifacts, c.seen = maps.Clone(r.artifacts), maps.Clone(r.seen)
		d.runs[i] = &c
	}
	return d
}

func (s *tmpState) Snapshot() any { s.mu.Lock(); defer s.mu.Unlock(); return s.d.clone() }
func (s *tmpState) Restore(v any) { s.mu.Lock(); defer s.mu.Unlock(); s.d = v.(tmpData).clone() }

func (s *tmpState) Installation(context.Context) (string, error) { return s.d.installation, nil }
func (s *tmpState) RouteKnown(context.Context, engine.Route) (string, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d.adopted, s.d.known, nil
}

func (s *tmpState) AdoptRoute(_ context.Context, r engine.Route, version string, a engine.Adoption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d.known, s.d.adopted = true, a.Installation
	s.d.last = max(s.d.last, a.Ordinal)
	pending := false
	var rest []engine.AdoptedResource
	for _, ar := range a.Resources {
		s.d.last = max(s.d.last, ar.Ordinal)
		if len(ar.Cursor) > 0 {
			s.d.cursors[ar.Resource] = engine.RouteCursor{Cursor: ar.Cursor, Seen: ar.Seen}
		}
		if ar.RunID == a.RunID && ar.Plan != nil {
			rest = append(rest, ar)
			pending = pending || !ar.Published
		}
	}
	id, err := uuid.Parse(a.RunID)
	if err != nil {
		return nil
	}
	if have, err := s.run(id); !pending && (err != nil || have.State == engine.StateCompleted) || len(rest) == 0 {
		return nil
	}
	for _, have := range s.d.runs {
		for _, sl := range have.slots {
			if sl.holder != "" && time.Now().Before(sl.expires) {
				return engine.Permanentf("", "adopt: %w", engine.ErrLocked)
			}
		}
	}
	ordinal := a.Ordinal
	slots := map[int]tmpSlot{}
	for i, have := range s.d.runs {
		if have.ID == id {
			version, slots, ordinal = have.Version, have.slots, have.Ordinal
			s.d.runs = slices.Delete(s.d.runs, i, i+1)
			break
		}
	}
	if ordinal < s.d.last {
		s.d.last++
		ordinal = s.d.last
	}
	for _, have := range s.d.runs {
		if have.State != engine.StateCompleted {
			have.State, have.Resumable = engine.StateFailed, false
			for k, sl := range have.slots {
				sl.gen++
				sl.holder = ""
				have.slots[k] = sl
			}
		}
	}
	run := &tmpRun{Run: engine.Run{ID: id, Route: r, Version: version, Ordinal: ordinal, State: engine.StateFailed, Resumable: true},
		planned: true, slots: slots, artifacts: map[string][]engine.Artifact{}, seen: map[string][]engine.RowID{}}
	for _, ar := range rest {
		run.add(ar.Plan, 0)
		for _, e := range ar.Ledger {
			if sp := run.split(e.Split); sp != nil {
				sp.Claim, sp.Epoch, sp.Position, sp.Totals, sp.done = e.Claim, e.Epoch, e.Position, e.Totals, e.Done
			}
		}
		for i := range run.splits {
			if run.splits[i].Resource == ar.Resource && ar.Published {
				run.splits[i].done = true
			}
		}
	}
	s.d.runs = append(s.d.runs, run)
	return nil
}

func (r *tmpRun) add(rp *engine.ResourcePlan, claim int64) {
	r.plan = append(r.plan, rp)
	n := rp.Selection.Resource
	for _, sp := range rp.Source.Splits {
		r.splits = append(r.splits, tmpSplit{ClaimedSplit: engine.ClaimedSplit{ID: sp.ID, Resource: n, Kind: engine.SplitRead, Generation: rp.Generation, Claim: claim}})
	}
	r.splits = append(r.splits, tmpSplit{ClaimedSplit: engine.ClaimedSplit{ID: engine.PublishSplit(n), Resource: n, Kind: engine.SplitPublish, Generation: rp.Generation, Claim: claim}})
}

func (r *tmpRun) split(id string) *tmpSplit {
	for i := range r.splits {
		if r.splits[i].ID == id {
			return &r.splits[i]
		}
	}
	return nil
}

func (s *tmpState) run(id uuid.UUID) (*tmpRun, error) {
	for _, r := range s.d.runs {
		if r.ID == id {
			return r, nil
		}
	}
	return nil, engine.Permanentf("", "run %s is not known", id)
}

func (s *tmpState) fence(f engine.Fence) (*tmpRun, error) {
	r, err := s.run(f.RunID)
	if err != nil {
		return nil, err
	}
	if have := r.slots[f.Slot].gen; have != f.Generation {
		return nil, &engine.StaleError{What: "generation", Subject: fmt.Sprintf("slot %d", f.Slot), Ours: f.Generation, Have: have}
	}
	return r, nil
}

func (s *tmpState) StartRun(_ context.Context, req engine.StartRequest) (engine.Run, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d.known = true
	var resume *tmpRun
	for i := len(s.d.runs) - 1; i >= 0; i-- {
		r := s.d.runs[i]
		if r.State == engine.StateCompleted || r.State == engine.StateCanceled || r.State == engine.StateFailed && !r.Resumable {
			continue
		}
		for _, sl := range r.slots {
			if sl.holder != "" && time.Now().Before(sl.expires) {
				return engine.Run{}, false, engine.Permanentf("", "run: %w", engine.ErrLocked)
			}
		}
		if resume == nil && !req.Restart && r.Version == req.Version && r.Ordinal >= s.d.last {
			resume = r
			continue
		}
		r.State, r.Resumable = engine.StateFailed, false
		for k, sl := range r.slots {
			sl.gen++
			r.slots[k] = sl
		}
	}
	if resume != nil {
		resume.State, resume.Resumable = engine.StateRunning, false
		return resume.Run, true, nil
	}
	s.d.last = max(s.d.last, req.AtLeastOrdinal) + 1
	id, _ := uuid.NewV7()
	r := &tmpRun{Run: engine.Run{ID: id, Route: req.Route, Version: req.Version, Ordinal: s.d.last, State: engine.StateRunning, StartedAt: time.Now()},
		slots: map[int]tmpSlot{}, artifacts: map[string][]engine.Artifact{}, seen: map[string][]engine.RowID{}}
	s.d.runs = append(s.d.runs, r)
	return r.Run, false, nil
}

func (s *tmpState) RaiseOrdinal(_ context.Context, id uuid.UUID, atLeast int64) (engine.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.run(id)
	if err != nil {
		return engine.Run{}, err
	}
	if r.State != engine.StateRunning {
		return engine.Run{}, &engine.StaleError{What: "generation", Subject: "run"}
	}
	if r.Ordinal <= atLeast {
		if r.planned {
			return engine.Run{}, engine.Bugf("raise ordinal of a planned run")
		}
		s.d.last = max(s.d.last, atLeast) + 1
		r.Ordinal = s.d.last
	}
	return r.Run, nil
}

func (s *tmpState) FinishRun(_ context.Context, f engine.Fence, end engine.RunEnd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.fence(f)
	if err != nil {
		return err
	}
	if r.State != engine.StateRunning && r.State != end.State {
		return engine.Bugf("finish run as %s: it is %s", end.State, r.State)
	}
	r.State, r.Resumable, r.Error, r.Receipt = end.State, end.Resumable, end.Error, end.Receipt
	s.free(r, f)
	return nil
}

func (s *tmpState) free(r *tmpRun, f engine.Fence) {
	sl := r.slots[f.Slot]
	sl.holder = ""
	r.slots[f.Slot] = sl
	for i := range r.splits {
		if sp := &r.splits[i]; sp.hasOwn && sp.owner == f.Slot && sp.owngen == f.Generation {
			sp.hasOwn = false
		}
	}
}

func (s *tmpState) GetRun(_ context.Context, id uuid.UUID) (engine.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.run(id)
	if err != nil {
		return engine.Run{}, err
	}
	return r.Run, nil
}

func (s *tmpState) ListRuns(context.Context, string, int) ([]engine.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []engine.Run
	for i := len(s.d.runs) - 1; i >= 0; i-- {
		out = append(out, s.d.runs[i].Run)
	}
	return out, nil
}

func (s *tmpState) Facts(context.Context, uuid.UUID, int64, int) ([]events.Fact, error) {
	return nil, nil
}
func (s *tmpState) AppendFacts(_ context.Context, f engine.Fence, _ []events.Fact) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.fence(f)
	return err
}
func (s *tmpState) Cursor(_ context.Context, _ engine.Route, resource string) (engine.RouteCursor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d.cursors[resource], nil
}
func (s *tmpState) ResetResource(_ context.Context, _ engine.Route, resource string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d.cursors[resource] = engine.RouteCursor{Reset: true}
	return nil
}

func copyPlan(rp *engine.ResourcePlan) *engine.ResourcePlan {
	c := *rp
	t := *rp.Target
	c.Target = &t
	return &c
}

func (s *tmpState) LoadPlan(_ context.Context, id uuid.UUID) (*engine.RunPlan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.run(id)
	if err != nil || !r.planned {
		return nil, err
	}
	out := &engine.RunPlan{}
	for _, rp := range r.plan {
		out.Resources = append(out.Resources, copyPlan(rp))
	}
	return out, nil
}

func (s *tmpState) SavePlan(_ context.Context, f engine.Fence, plan *engine.RunPlan, _ []events.Fact) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.fence(f)
	if err != nil {
		return err
	}
	if r.planned {
		return engine.Bugf("save plan: it has one")
	}
	for _, rp := range plan.Resources {
		r.add(copyPlan(rp), 0)
	}
	r.planned = true
	return nil
}

func (s *tmpState) ReplaceResource(_ context.Context, f engine.Fence, rp *engine.ResourcePlan, _ []events.Fact) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.fence(f)
	if err != nil {
		return err
	}
	n := rp.Selection.Resource
	var claim int64
	for _, sp := range r.splits {
		if sp.Resource == n {
			claim = max(claim, sp.Claim)
			if sp.Kind == engine.SplitPublish && sp.done {
				return engine.Bugf("replace resource: it is published")
			}
		}
	}
	for _, old := range r.plan {
		if old.Selection.Resource == n && old.Generation+1 != rp.Generation {
			a, _ := json.Marshal(old)
			b, _ := json.Marshal(rp)
			if string(a) == string(b) {
				return nil
			}
			return engine.Bugf("replace resource: generation %d after %d", rp.Generation, old.Generation)
		}
	}
	r.plan = slices.DeleteFunc(r.plan, func(o *engine.ResourcePlan) bool { return o.Selection.Resource == n })
	r.splits = slices.DeleteFunc(r.splits, func(o tmpSplit) bool { return o.Resource == n })
	delete(r.artifacts, n)
	delete(r.seen, n)
	r.add(copyPlan(rp), claim)
	return nil
}

func (s *tmpState) ClaimSplit(_ context.Context, f engine.Fence, exclude []string) (*engine.ClaimedSplit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.fence(f)
	if err != nil {
		return nil, err
	}
	if r.State != engine.StateRunning {
		return nil, &engine.StaleError{What: "generation", Subject: "slot", Ours: f.Generation, Have: f.Generation}
	}
	open := false
	readOpen := map[string]bool{}
	for _, sp := range r.splits {
		if sp.Kind == engine.SplitRead && !sp.done {
			readOpen[sp.Resource] = true
		}
	}
	for _, kind := range []engine.SplitKind{engine.SplitPublish, engine.SplitRead} {
		for i := range r.splits {
			sp := &r.splits[i]
			if sp.done || sp.Kind != kind || slices.Contains(exclude, sp.Resource) {
				continue
			}
			open = true
			if kind == engine.SplitPublish && readOpen[sp.Resource] {
				continue
			}
			if sp.hasOwn {
				sl := r.slots[sp.owner]
				if sl.gen == sp.owngen && sl.holder != "" && time.Now().Before(sl.expires) {
					continue
				}
			}
			sp.Claim++
			sp.hasOwn, sp.owner, sp.owngen = true, f.Slot, f.Generation
			c := sp.ClaimedSplit
			return &c, nil
		}
	}
	if !open {
		return nil, engine.ErrSplitDone
	}
	return nil, nil
}

func (s *tmpState) owned(f engine.Fence, id string, claim int64) (*tmpRun, *tmpSplit, error) {
	r, err := s.fence(f)
	if err != nil {
		return nil, nil, err
	}
	sp := r.split(id)
	if sp == nil || sp.Claim != claim || !sp.hasOwn || sp.owner != f.Slot || sp.owngen != f.Generation {
		e := &engine.StaleError{What: "claim", Subject: id, Ours: claim}
		if sp != nil {
			e.Have = sp.Claim
		}
		return nil, nil, e
	}
	return r, sp, nil
}

func (s *tmpState) RaiseClaim(_ context.Context, f engine.Fence, id string, atLeast int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.fence(f)
	if err != nil {
		return 0, err
	}
	sp := r.split(id)
	if sp == nil || !sp.hasOwn || sp.owner != f.Slot || sp.owngen != f.Generation {
		return 0, &engine.StaleError{What: "claim", Subject: id}
	}
	if sp.Claim <= atLeast {
		sp.Claim = atLeast + 1
	}
	return sp.Claim, nil
}

func (s *tmpState) commit(f engine.Fence, p engine.Progress) (*tmpSplit, error) {
	r, sp, err := s.owned(f, p.Split, p.Claim)
	if err != nil {
		return nil, err
	}
	sp.Epoch, sp.Position, sp.done, sp.Totals = p.Epoch, p.Position, p.Done, p.Totals
	r.artifacts[sp.Resource] = append(slices.Clip(r.artifacts[sp.Resource]), p.Artifacts...)
	r.seen[sp.Resource] = append(slices.Clip(r.seen[sp.Resource]), p.Seen...)
	return sp, nil
}

func (s *tmpState) Commit(_ context.Context, f engine.Fence, p engine.Progress) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.commit(f, p)
	return err
}

func (s *tmpState) ReturnSplit(_ context.Context, f engine.Fence, id string, claim int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, sp, err := s.owned(f, id, claim)
	if err == nil {
		sp.hasOwn = false
	}
	return err
}

func (s *tmpState) CommitPublish(_ context.Context, f engine.Fence, p engine.Progress, cursor json.RawMessage, seen []engine.RowID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Done = true
	sp, err := s.commit(f, p)
	if err == nil {
		s.d.cursors[sp.Resource] = engine.RouteCursor{Cursor: cursor, Seen: seen}
	}
	return err
}

func (s *tmpState) Splits(_ context.Context, id uuid.UUID) ([]engine.SplitStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.run(id)
	if err != nil {
		return nil, err
	}
	var out []engine.SplitStatus
	for _, sp := range r.splits {
		out = append(out, engine.SplitStatus{ClaimedSplit: sp.ClaimedSplit, Done: sp.done, Owned: sp.hasOwn})
	}
	return out, nil
}

func (s *tmpState) Artifacts(_ context.Context, id uuid.UUID, resource string) ([]engine.Artifact, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.run(id)
	if err != nil {
		return nil, err
	}
	return r.artifacts[resource], nil
}

func (s *tmpState) SeenRows(_ context.Context, id uuid.UUID, resource string) ([]engine.RowID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.run(id)
	if err != nil {
		return nil, err
	}
	return r.seen[resource], nil
}

func (s *tmpState) Acquire(_ context.Context, id uuid.UUID, slot int, holder string, ttl time.Duration) (engine.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.run(id)
	if err != nil {
		return engine.Lease{}, err
	}
	if r.State != engine.StateRunning {
		return engine.Lease{}, engine.Permanentf("", "take slot: the run is %s", r.State)
	}
	sl := r.slots[slot]
	if sl.holder != "" && time.Now().Before(sl.expires) {
		return engine.Lease{}, engine.Permanentf("", "take slot: %w", engine.ErrLocked)
	}
	sl.gen++
	sl.holder, sl.expires = holder, time.Now().Add(ttl)
	r.slots[slot] = sl
	for i := range r.splits {
		if sp := &r.splits[i]; sp.hasOwn && sp.owner == slot {
			sp.hasOwn = false
		}
	}
	r.Attempts++
	return engine.Lease{Fence: engine.Fence{RunID: id, Slot: slot, Generation: sl.gen}, Holder: holder, Attempt: r.Attempts}, nil
}

func (s *tmpState) Renew(_ context.Context, l engine.Lease, ttl time.Duration) (engine.Desired, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.fence(l.Fence)
	if err != nil {
		return "", err
	}
	sl := r.slots[l.Slot]
	if sl.holder == "" {
		return "", &engine.StaleError{What: "generation", Subject: "slot", Ours: l.Generation, Have: l.Generation}
	}
	sl.expires = time.Now().Add(ttl)
	r.slots[l.Slot] = sl
	return r.desired, nil
}

func (s *tmpState) EndAttempt(_ context.Context, l engine.Lease, _ []events.Fact) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.fence(l.Fence)
	if err != nil {
		return err
	}
	s.free(r, l.Fence)
	return nil
}

func (s *tmpState) SetDesired(_ context.Context, id uuid.UUID, d engine.Desired) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.run(id)
	if err != nil {
		return err
	}
	r.desired = d
	return nil
}

var _ engine.State = (*tmpState)(nil)
