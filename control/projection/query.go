package projection

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Dimension is what metrics can be told apart by.
type Dimension string

// The dimensions. A connector is a pair "source->sink" when values are told apart
// by it, and either of the two when it narrows.
const (
	ByPipeline  Dimension = "pipeline"
	ByConnector Dimension = "connector"
	ByResource  Dimension = "resource"
	ByStatus    Dimension = "status"
)

// Query asks for metrics.
type Query struct {
	// Bucket is hour, day or week; empty: one value for the whole time.
	Bucket string
	// From is taken down to its hour; To is exclusive.
	From, To time.Time
	// Pipeline, Connector, Resource and Status narrow; zero values don't.
	Pipeline                    uuid.UUID
	Connector, Resource, Status string
	By                          []Dimension
	// Durations asks for how many endings took how long, for percentiles.
	Durations bool
}

// Resources tells whether single resources are asked for rather than whole runs.
func (q Query) Resources() bool { return q.Resource != "" || slices.Contains(q.By, ByResource) }

// Group are the values of the dimensions by which values are told apart; a
// pipeline by its name.
type Group map[Dimension]string

// Point is a bucket of an answer.
type Point struct {
	// At is its beginning; zero without buckets.
	At    time.Time
	Group Group
	Metrics
}

// RouteHealth is how one route of a pipeline is doing.
type RouteHealth struct {
	Pipeline     uuid.UUID
	PipelineName string
	Paused       bool
	Route        string
	CreatedAt    time.Time
	LastRun      uuid.UUID
	LastState    string
	LastError    string
	// SuccessStartedAt and SuccessEndedAt are those of the last run that completed.
	SuccessStartedAt, SuccessEndedAt, FailureEndedAt time.Time
	// Failures are those since that.
	Failures int
	// Expected is how old the last success may be: the least that a notification
	// rule says; 0: none does.
	Expected time.Duration
}

// Health is how a pipeline is doing: like its route that does worst.
type Health struct {
	Pipeline     uuid.UUID
	PipelineName string
	// State is paused, failing, stale, healthy or unknown (it never ended a run).
	State                        string
	LastRun                      uuid.UUID
	LastState, Error             string
	LastSuccessAt, LastFailureAt time.Time
	FailuresInARow               int
	// Lag is how old the destination's data are: the time since the last run that
	// completed began; negative: none did.
	Lag      time.Duration
	Expected time.Duration
	Stale    bool
}

// Usages are what runs used, in an answer about costs.
type Usages struct {
	// Key is a pipeline's or run's id, or a day such as 2026-11-30.
	Key string
	// Name is the pipeline's.
	Name                string
	Runs                int64
	Compute, MemoryTime int64 // ms, MiB ms
	Bytes               int64
}

// Cost is Usages with their price.
type Cost struct {
	Usages
	Amount float64
}

// Prices turn use into money: the sum of compute hours, GiB-hours of memory, GiB
// written, and runs, each times its price. All zero: nothing costs anything.
type Prices struct {
	Currency                             string
	ComputeHour, MemoryGiBHour, GiB, Run float64
}

// Of is the price of what was used.
func (p Prices) Of(u Usages) float64 {
	const hour, mib, gib = 3600 * 1000, 1024, 1 << 30
	return float64(u.Compute)/hour*p.ComputeHour + float64(u.MemoryTime)/hour/mib*p.MemoryGiBHour +
		float64(u.Bytes)/gib*p.GiB + float64(u.Runs)*p.Run
}

// Rebuild is a rebuild of the read models. It is done once no run waits.
type Rebuild struct {
	ID uuid.UUID
	// Waiting is how many runs have facts that are not folded yet.
	Waiting int64
}

// Reader reads the read models, and begins them anew.
type Reader interface {
	Metrics(ctx context.Context, a control.Actor, q Query, limit int) ([]Point, error)
	// RoutesHealth returns the routes of the next pipelines by name; pipeline
	// uuid.Nil: of all. next is the cursor after them.
	RoutesHealth(ctx context.Context, a control.Actor, pipeline uuid.UUID, p control.Page) (routes []RouteHealth, next string, err error)
	// Costs returns sums by pipeline, day or run.
	Costs(ctx context.Context, a control.Actor, by string, pipeline uuid.UUID, from, to time.Time, p control.Page) (control.List[Usages], error)
	// Rebuild empties the read models of the organization and lets all its facts wait
	// for the projection, which folds them anew without raising their events again; in
	// one transaction, with an audit entry. It is refused with *control.ConflictError
	// "facts_dropped" if retention has dropped facts. id names the request.
	Rebuild(ctx context.Context, a control.Actor, id uuid.UUID) (Rebuild, error)
	// Waiting counts the runs whose facts wait for the projection.
	Waiting(ctx context.Context, a control.Actor) (int64, error)
	// PipelineID finds a live pipeline by its name or id.
	PipelineID(ctx context.Context, a control.Actor, ref string) (uuid.UUID, error)
}

// Service answers questions about the read models.
type Service struct {
	Reader Reader
	Prices Prices
	Clock  control.Clock
}

const (
	// maxPoints bounds an answer.
	maxPoints = 10000
	usualTime = 24 * time.Hour
)

// PipelineID finds the pipeline of a reference, uuid.Nil for the empty one.
func (s *Service) PipelineID(ctx context.Context, a control.Actor, ref string) (uuid.UUID, error) {
	if err := control.Authorize(a, control.ReadMetrics); err != nil || ref == "" {
		return uuid.Nil, err
	}
	return s.Reader.PipelineID(ctx, a, ref)
}

// Rebuild makes the read models anew; see [Reader].
func (s *Service) Rebuild(ctx context.Context, a control.Actor) (Rebuild, error) {
	if err := control.Authorize(a, control.RebuildMetrics); err != nil {
		return Rebuild{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Rebuild{}, fmt.Errorf("make id: %w", err)
	}
	return s.Reader.Rebuild(ctx, a, id)
}

// Waiting returns how many runs have facts that the read models lack.
func (s *Service) Waiting(ctx context.Context, a control.Actor) (int64, error) {
	if err := control.Authorize(a, control.ReadMetrics); err != nil {
		return 0, err
	}
	return s.Reader.Waiting(ctx, a)
}

// Metrics returns a point for each group and bucket that has something, sorted by
// group and time.
func (s *Service) Metrics(ctx context.Context, a control.Actor, q Query) ([]Point, error) {
	if err := control.Authorize(a, control.ReadMetrics); err != nil {
		return nil, err
	}
	from, to, err := s.span(q.From, q.To)
	if err != nil {
		return nil, err
	}
	if q.To.IsZero() {
		// Nothing lies ahead: the sums of today as a whole are those up to now.
		to = to.Truncate(24 * time.Hour).Add(24 * time.Hour)
	}
	q.From, q.To = from.Truncate(time.Hour), to
	points, err := s.Reader.Metrics(ctx, a, q, maxPoints+1)
	if err == nil && len(points) > maxPoints {
		return nil, control.Invalid("from", "ask for a shorter time, wider buckets or fewer groups", "the answer would have more than %d points", maxPoints)
	}
	return points, err
}

// span fills in the usual time: the last day.
func (s *Service) span(from, to time.Time) (time.Time, time.Time, error) {
	if to.IsZero() {
		to = s.Clock.Now()
	}
	if from.IsZero() {
		from = to.Add(-usualTime)
	}
	if !from.Before(to) {
		return from, to, control.Invalid("from", "", "from must be before to")
	}
	return from.UTC(), to.UTC(), nil
}

// Health returns the health of a pipeline.
func (s *Service) Health(ctx context.Context, a control.Actor, pipeline uuid.UUID) (Health, error) {
	if err := control.Authorize(a, control.ReadMetrics); err != nil {
		return Health{}, err
	}
	routes, _, err := s.Reader.RoutesHealth(ctx, a, pipeline, control.Page{Limit: 1})
	if err != nil {
		return Health{}, err
	}
	all := s.healths(routes)
	if len(all) == 0 {
		return Health{}, &control.NotFoundError{Kind: "pipeline", Ref: pipeline.String()}
	}
	return all[0], nil
}

// Healths lists the health of pipelines, by name.
func (s *Service) Healths(ctx context.Context, a control.Actor, p control.Page) (control.List[Health], error) {
	if err := control.Authorize(a, control.ReadMetrics); err != nil {
		return control.List[Health]{}, err
	}
	routes, next, err := s.Reader.RoutesHealth(ctx, a, uuid.Nil, p)
	return control.List[Health]{Items: s.healths(routes), Next: next}, err
}

// healths joins the routes of pipelines, which stand beside each other.
func (s *Service) healths(routes []RouteHealth) []Health {
	var out []Health
	now := s.Clock.Now()
	for _, r := range routes {
		h := healthOf(r, now)
		if n := len(out); n > 0 && out[n-1].Pipeline == h.Pipeline {
			out[n-1] = worse(out[n-1], h)
			continue
		}
		out = append(out, h)
	}
	return out
}

func healthOf(r RouteHealth, now time.Time) Health {
	h := Health{
		Pipeline: r.Pipeline, PipelineName: r.PipelineName, LastRun: r.LastRun, LastState: r.LastState, Error: r.LastError,
		LastSuccessAt: r.SuccessEndedAt, LastFailureAt: r.FailureEndedAt, FailuresInARow: r.Failures, Expected: r.Expected, Lag: -1,
	}
	since := r.CreatedAt
	if !r.SuccessEndedAt.IsZero() {
		since = r.SuccessEndedAt
		h.Lag = now.Sub(r.SuccessStartedAt)
	}
	h.Stale = r.Expected > 0 && !r.Paused && now.Sub(since) > r.Expected
	switch {
	case r.Paused:
		h.State = "paused"
	case r.Failures > 0:
		h.State = "failing"
	case h.Stale:
		h.State = "stale"
	case r.SuccessEndedAt.IsZero():
		h.State = "unknown"
	default:
		h.State = "healthy"
	}
	return h
}

// worse joins two routes of a pipeline.
func worse(a, b Health) Health {
	order := []string{"healthy", "unknown", "stale", "failing", "paused"}
	if slices.Index(order, b.State) > slices.Index(order, a.State) {
		a, b = b, a
	}
	// What a's route does not show, b's may.
	a.FailuresInARow = max(a.FailuresInARow, b.FailuresInARow)
	a.Stale = a.Stale || b.Stale
	a.LastFailureAt = later(a.LastFailureAt, b.LastFailureAt)
	if a.LastSuccessAt.IsZero() || b.LastSuccessAt.IsZero() {
		// A pipeline has succeeded as far back as its last route has.
		a.LastSuccessAt, a.Lag = time.Time{}, -1
	} else {
		if b.LastSuccessAt.Before(a.LastSuccessAt) {
			a.LastSuccessAt = b.LastSuccessAt
		}
		a.Lag = max(a.Lag, b.Lag)
	}
	return a
}

// Costs lists what runs used that were asked for in a time, and its price, by
// pipeline, day or run.
func (s *Service) Costs(ctx context.Context, a control.Actor, by string, pipeline uuid.UUID, from, to time.Time, p control.Page) (out control.List[Cost], fromUsed, toUsed time.Time, err error) {
	if err := control.Authorize(a, control.ReadMetrics); err != nil {
		return out, from, to, err
	}
	if !slices.Contains([]string{"pipeline", "day", "run"}, by) {
		return out, from, to, control.Invalid("group_by", "", "costs are by pipeline, day or run, not by %q", by)
	}
	if from, to, err = s.span(from, to); err != nil {
		return out, from, to, err
	}
	list, err := s.Reader.Costs(ctx, a, by, pipeline, from, to, p)
	if err != nil {
		return out, from, to, fmt.Errorf("sum up costs: %w", err)
	}
	out.Next = list.Next
	for _, u := range list.Items {
		out.Items = append(out.Items, Cost{u, s.Prices.Of(u)})
	}
	return out, from, to, nil
}
