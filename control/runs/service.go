package runs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// Store keeps runs. Its errors are package control's.
type Store interface {
	// InsertRuns stores new runs in one transaction, with their facts and offers,
	// and the context's idempotency key: if that made runs before, those are
	// returned. [Intake] decides for each with its route's latest run at hand. With
	// allowBusy, routes that are taken are left out and told; else they give
	// *OverlapError, and nothing is stored.
	InsertRuns(ctx context.Context, a control.Actor, drafts []Draft, allowBusy bool) (Started, error)
	// ChangeRun locks a run, lets decide say what happens to it, and applies that
	// with its facts, offer and audit entry in the same transaction. decide may be
	// called again if the transaction has to be.
	ChangeRun(ctx context.Context, a control.Actor, id uuid.UUID, action string, decide func(*Run) (Change, error)) (Run, error)
	Run(ctx context.Context, organization, id uuid.UUID) (Run, error)
	Runs(ctx context.Context, organization uuid.UUID, f Filter, p control.Page) (control.List[Run], error)
	// RunFacts returns facts with a number above after, in order.
	RunFacts(ctx context.Context, organization, id uuid.UUID, after int64, limit int) ([]events.Fact, error)
	RunResources(ctx context.Context, organization, id uuid.UUID, p control.Page) (control.List[Resource], error)
}

// Pipelines compiles pipelines for their runs.
type Pipelines interface {
	// CompileRuns returns what runs of the pipeline's current version need; ref is
	// a name or an id. *control.NotFoundError if there is no such pipeline.
	CompileRuns(ctx context.Context, organization uuid.UUID, ref string) (Compiled, error)
}

// Compiled is a pipeline as runs need it.
type Compiled struct {
	ID   uuid.UUID
	Name string
	// Number is the current version's.
	Number int64
	Paused bool
	// Routes are its source-sink pairs, one run each.
	Routes []Route
	Policy Policy
}

// Route is a source-sink pair of a version.
type Route struct {
	// Key names it within the graph, Name is what engine and destinations remember
	// it by, Hash is its document's content hash.
	Key, Name, Hash string
}

// Started is what a request started.
type Started struct {
	Runs []Run
	// Busy are the routes that were left out because another run has them.
	Busy []Busy
}

// Busy is a run that keeps others off its route.
type Busy struct {
	Route string
	Run   uuid.UUID
	State engine.RunState
}

// OverlapError tells that routes are taken by runs that are not over (P21). It is
// a *control.ConflictError "run_overlap" too.
type OverlapError struct {
	control.ConflictError
	Busy []Busy
}

// Unwrap returns the conflict.
func (e *OverlapError) Unwrap() error { return &e.ConflictError }

// Overlap makes an [OverlapError].
func Overlap(pipeline string, busy ...Busy) error {
	e := &OverlapError{Busy: busy, ConflictError: control.ConflictError{Code: "run_overlap",
		Message: fmt.Sprintf("pipeline %q has a run already", pipeline), Hint: "wait until it ends, or cancel it"}}
	if len(busy) > 0 {
		b := busy[0]
		e.State = string(b.State)
		e.Message = fmt.Sprintf("pipeline %q has a run already: %s is %s", pipeline, b.Run, b.State)
		if b.State == engine.StatePaused {
			e.Hint = "resume or cancel it"
		}
	}
	return e
}

// Waiter waits for new facts of a run. Its answer is a hint: it may come without
// any, and must be looked after anyhow once until is over.
type Waiter interface {
	WaitFacts(ctx context.Context, run uuid.UUID, until time.Time)
}

// Service starts, shows and steers runs.
type Service struct {
	Store     Store
	Pipelines Pipelines
	Waiter    Waiter
	Clock     control.Clock
	// MaxWait replaces [MaxWait]; 0 leaves it.
	MaxWait time.Duration
}

// Draft is a run to be.
type Draft struct {
	ID uuid.UUID
	Compiled
	// Route is the one of Compiled.Routes that this run is for.
	Route   Route
	Trigger Trigger
	Options Options
	// NotBefore makes the run scheduled until then; zero: it is requested.
	NotBefore time.Time
	// Restart begins a new run even if the route's latest one could go on.
	Restart bool
}

// StartRequest asks for runs of a pipeline, one for each route.
type StartRequest struct {
	// Pipeline is a name or an id.
	Pipeline  string
	Trigger   Trigger
	Options   Options
	NotBefore time.Time
	Restart   bool
	// AllowBusy starts the other routes if some have an open run.
	AllowBusy bool
}

// Start accepts runs of a pipeline, one for each of its routes, all or none. If
// the latest run of a route failed, can be resumed, and is of the same version
// and options, it goes on instead of a new one, as on the command line. With the
// context's idempotency key, repeating the request returns the same runs.
func (s *Service) Start(ctx context.Context, a control.Actor, req StartRequest) (Started, error) {
	if err := control.Authorize(a, control.OperateRuns); err != nil {
		return Started{}, err
	}
	if err := req.Options.check(); err != nil {
		return Started{}, err
	}
	if req.Trigger.Kind == "" {
		req.Trigger.Kind = TriggerAPI
	}
	c, err := s.Pipelines.CompileRuns(ctx, a.Organization, req.Pipeline)
	if err != nil {
		return Started{}, err
	}
	if c.Paused {
		return Started{}, &control.ConflictError{Code: "pipeline_paused", State: "paused", Message: fmt.Sprintf("pipeline %q is paused", c.Name), Hint: "resume the pipeline first"}
	}
	if len(c.Routes) == 0 {
		return Started{}, &control.ConflictError{Code: "pipeline_empty", Message: fmt.Sprintf("pipeline %q has no edge to run", c.Name)}
	}
	if !req.NotBefore.IsZero() && !req.NotBefore.After(s.Clock.Now()) {
		req.NotBefore = time.Time{}
	}
	drafts := make([]Draft, len(c.Routes))
	for i, route := range c.Routes {
		id, err := uuid.NewV7()
		if err != nil {
			return Started{}, fmt.Errorf("make run id: %w", err)
		}
		drafts[i] = Draft{ID: id, Compiled: c, Route: route, Trigger: req.Trigger, Options: req.Options, NotBefore: req.NotBefore, Restart: req.Restart}
	}
	return s.Store.InsertRuns(ctx, a, drafts, req.AllowBusy)
}

// check refuses options that contradict each other.
func (o Options) check() error {
	var p []control.Problem
	for i, name := range o.FullRefresh {
		if len(o.Only) > 0 && !slices.Contains(o.Only, name) {
			p = append(p, control.Problem{Path: fmt.Sprintf("options.full_refresh[%d]", i), Message: fmt.Sprintf("%s is not among the resources in only", name)})
		}
	}
	seen := map[string]bool{}
	for i, b := range o.Backfill {
		path := fmt.Sprintf("backfill[%d]", i)
		if b.From == "" && b.To == "" {
			p = append(p, control.Problem{Path: path, Message: "it has neither end", Hint: "say from, to, or both; full_refresh reads a resource from its beginning"})
		}
		if seen[b.Resource] {
			p = append(p, control.Problem{Path: path + ".resource", Message: b.Resource + " is there twice", Hint: "start a run for each range"})
		}
		seen[b.Resource] = true
	}
	if len(o.Backfill) > 0 && len(o.Only)+len(o.FullRefresh) > 0 {
		p = append(p, control.Problem{Path: "options", Message: "a backfill is about its ranges alone", Hint: "leave only and full_refresh out"})
	}
	if len(p) > 0 {
		return &control.InvalidError{Problems: p}
	}
	return nil
}

// Intake decides what a draft means with its route's latest run at hand, which is
// nil if there is none: that run's change if it goes on, or else the new run's.
func Intake(latest *Run, d Draft) (resume bool, c Change, err error) {
	if latest != nil && !d.Restart && latest.State == engine.StateFailed && latest.Resumable && !latest.Overtaken &&
		latest.Hash == d.Route.Hash && sameOptions(latest.Options, d.Options) {
		c, err = Resume(latest, string(d.Trigger.Kind))
		return true, c, err
	}
	r := Run{ID: d.ID, Title: d.Compiled.Name, Name: d.Route.Name, Hash: d.Route.Hash, Route: d.Route.Key, State: engine.StateRequested, Desired: engine.DesiredRun}
	c = r.goOn(d.NotBefore)
	c.Facts = []events.Payload{requested(&r)}
	if !d.NotBefore.IsZero() {
		c.State, c.Facts = engine.StateScheduled, []events.Payload{events.RunScheduled{NotBefore: d.NotBefore.UTC()}}
	}
	return false, c, nil
}

func sameOptions(a, b Options) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// Get returns a run.
func (s *Service) Get(ctx context.Context, a control.Actor, id uuid.UUID) (Run, error) {
	if err := control.Authorize(a, control.ReadRuns); err != nil {
		return Run{}, err
	}
	return s.Store.Run(ctx, a.Organization, id)
}

// List returns runs, the newest first.
func (s *Service) List(ctx context.Context, a control.Actor, f Filter, p control.Page) (control.List[Run], error) {
	if err := control.Authorize(a, control.ReadRuns); err != nil {
		return control.List[Run]{}, err
	}
	return s.Store.Runs(ctx, a.Organization, f, p)
}

func bound(n, usual, most int) int {
	if n <= 0 {
		return usual
	}
	return min(n, most)
}

// Pause asks a run to stop at safe positions.
func (s *Service) Pause(ctx context.Context, a control.Actor, id uuid.UUID) (Run, error) {
	return s.steer(ctx, a, id, "run.pause", Pause)
}

// Resume lets a paused or partial run go on.
func (s *Service) Resume(ctx context.Context, a control.Actor, id uuid.UUID) (Run, error) {
	return s.steer(ctx, a, id, "run.resume", Resume)
}

// Cancel ends a run for good.
func (s *Service) Cancel(ctx context.Context, a control.Actor, id uuid.UUID) (Run, error) {
	return s.steer(ctx, a, id, "run.cancel", Cancel)
}

func (s *Service) steer(ctx context.Context, a control.Actor, id uuid.UUID, action string, decide func(*Run, string) (Change, error)) (Run, error) {
	if err := control.Authorize(a, control.OperateRuns); err != nil {
		return Run{}, err
	}
	return s.Store.ChangeRun(ctx, a, id, action, func(r *Run) (Change, error) { return decide(r, a.Name) })
}

// Retry lets a partial run go on from its checkpoint, and begins a new run with
// the same options for one that failed for good or was canceled.
func (s *Service) Retry(ctx context.Context, a control.Actor, id uuid.UUID) (Run, error) {
	if err := control.Authorize(a, control.OperateRuns); err != nil {
		return Run{}, err
	}
	r, err := s.Store.Run(ctx, a.Organization, id)
	if err != nil {
		return Run{}, err
	}
	switch {
	case r.State == engine.StateFailed && r.Resumable && !r.Overtaken:
		return s.steer(ctx, a, id, "run.retry", Resume)
	case r.State != engine.StateFailed && r.State != engine.StateCanceled:
		return Run{}, r.illegal("retried", "")
	}
	c, err := s.Pipelines.CompileRuns(ctx, a.Organization, r.Pipeline.String())
	if err != nil {
		return Run{}, err
	}
	at := slices.IndexFunc(c.Routes, func(x Route) bool { return x.Key == r.Route })
	if at < 0 {
		return Run{}, r.illegal("retried", "the pipeline's current version has no such route any more")
	}
	next, err := uuid.NewV7()
	if err != nil {
		return Run{}, fmt.Errorf("make run id: %w", err)
	}
	made, err := s.Store.InsertRuns(ctx, a, []Draft{{ID: next, Compiled: c, Route: c.Routes[at], Trigger: Trigger{Kind: TriggerRetry, Of: id}, Options: r.Options}}, false)
	if err != nil {
		return Run{}, err
	}
	return made.Runs[0], nil
}

// MaxWait bounds how long [Service.Facts] waits.
const MaxWait = 20 * time.Second

// Facts returns facts with a number above after. Without any it waits for the
// first one, at most that long, or until none can come any more; over tells that.
func (s *Service) Facts(ctx context.Context, a control.Actor, id uuid.UUID, after int64, wait time.Duration, limit int) (facts []events.Fact, over bool, err error) {
	if err := control.Authorize(a, control.ReadRuns); err != nil {
		return nil, false, err
	}
	limit = bound(limit, 200, 1000)
	until := s.Clock.Now().Add(min(wait, cmp.Or(s.MaxWait, MaxWait)))
	for {
		// The run first: facts that its end brought are then among those read.
		r, err := s.Store.Run(ctx, a.Organization, id)
		if err != nil {
			return nil, false, err
		}
		if facts, err = s.Store.RunFacts(ctx, a.Organization, id, after, limit); err != nil {
			return nil, false, err
		}
		ended := !r.Open()
		told := len(facts) == 0 && after >= r.LastFact || len(facts) > 0 && facts[len(facts)-1].Number >= r.LastFact
		if len(facts) > 0 || ended || !s.Clock.Now().Before(until) {
			return facts, ended && told, nil
		}
		s.Waiter.WaitFacts(ctx, id, until)
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
	}
}

// Resources returns the run's resources with their progress.
func (s *Service) Resources(ctx context.Context, a control.Actor, id uuid.UUID, p control.Page) (control.List[Resource], error) {
	if err := control.Authorize(a, control.ReadRuns); err != nil {
		return control.List[Resource]{}, err
	}
	return s.Store.RunResources(ctx, a.Organization, id, p)
}

// Receipt returns the run's receipt, as JSON.
func (s *Service) Receipt(ctx context.Context, a control.Actor, id uuid.UUID) (json.RawMessage, error) {
	r, err := s.Get(ctx, a, id)
	if err != nil {
		return nil, err
	}
	if len(r.Receipt) == 0 {
		return nil, &control.NotFoundError{Kind: "receipt of run", Ref: id.String()}
	}
	return r.Receipt, nil
}
