package server

import (
	"context"
	"time"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control/projection"
)

// value is what a bucket tells of one metric.
type value struct {
	sum, min, max float64
	p50, p95, p99 float64
}

// valueOf picks a metric out of a bucket.
func valueOf(name rest.MetricName, m projection.Metrics) value {
	const second = 1000
	seconds := func(part float64) float64 {
		// A class's end may lie past the longest of its durations.
		return min(projection.Percentile(m.Durations, part).Seconds(), float64(m.MaxMillis)/second)
	}
	switch name {
	case rest.MetricNameRowsRead:
		return value{sum: float64(m.Read)}
	case rest.MetricNameRowsWritten:
		return value{sum: float64(m.Written)}
	case rest.MetricNameBytes:
		return value{sum: float64(m.Bytes)}
	case rest.MetricNameDurationSeconds:
		return value{
			sum: float64(m.Millis) / second, min: float64(m.MinMillis) / second, max: float64(m.MaxMillis) / second,
			p50: seconds(0.5), p95: seconds(0.95), p99: seconds(0.99),
		}
	case rest.MetricNameCpuSeconds:
		return value{sum: float64(m.CPU) / second}
	case rest.MetricNamePeakMemoryBytes:
		// Peaks don't add up: the greatest stands for all.
		return value{sum: float64(m.PeakBytes), max: float64(m.PeakBytes)}
	}
	return value{sum: float64(m.Runs)}
}

func dimensions(list []rest.MetricGroup) []projection.Dimension {
	return each(list, func(g rest.MetricGroup) projection.Dimension { return projection.Dimension(g) })
}

func groupText(g projection.Group) map[string]string {
	out := make(map[string]string, len(g))
	for d, v := range g {
		out[string(d)] = v
	}
	return out
}

// ListMetricSeries answers with a metric over time.
func (o *operations) ListMetricSeries(ctx context.Context, r rest.ListMetricSeriesRequestObject) (rest.ListMetricSeriesResponseObject, error) {
	p := r.Params
	pipeline, err := o.Metrics.PipelineID(ctx, actorOf(ctx), p.Pipeline)
	if err != nil {
		return nil, err
	}
	bucket := string(p.Bucket)
	if bucket == "" {
		bucket = "hour"
	}
	points, err := o.Metrics.Metrics(ctx, actorOf(ctx), projection.Query{
		Bucket: bucket, From: p.From, To: p.To, Pipeline: pipeline, Connector: p.Connector, Resource: p.Resource, Status: string(p.Status), By: dimensions(p.GroupBy),
		Durations: p.Metric == rest.MetricNameDurationSeconds,
	})
	if err != nil {
		return nil, err
	}
	out := rest.ListMetricSeries200JSONResponse{Items: []rest.MetricSeries{}}
	for _, pt := range points {
		group := groupText(pt.Group)
		if n := len(out.Items); n == 0 || !sameGroup(out.Items[n-1].Group, group) {
			out.Items = append(out.Items, rest.MetricSeries{Group: group})
		}
		v, s := valueOf(p.Metric, pt.Metrics), &out.Items[len(out.Items)-1]
		s.Points = append(s.Points, rest.MetricPoint{At: pt.At, Count: pt.Runs, Sum: v.sum, Min: v.min, Max: v.max, P50: v.p50, P95: v.p95, P99: v.p99})
	}
	return out, nil
}

func sameGroup(a, b map[string]string) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// ListMetricAggregates answers with a metric over the whole time.
func (o *operations) ListMetricAggregates(ctx context.Context, r rest.ListMetricAggregatesRequestObject) (rest.ListMetricAggregatesResponseObject, error) {
	p := r.Params
	pipeline, err := o.Metrics.PipelineID(ctx, actorOf(ctx), p.Pipeline)
	if err != nil {
		return nil, err
	}
	points, err := o.Metrics.Metrics(ctx, actorOf(ctx), projection.Query{
		From: p.From, To: p.To, Pipeline: pipeline, Connector: p.Connector, Resource: p.Resource, Status: string(p.Status), By: dimensions(p.GroupBy),
		Durations: p.Metric == rest.MetricNameDurationSeconds,
	})
	if err != nil {
		return nil, err
	}
	return rest.ListMetricAggregates200JSONResponse{Items: each(points, func(pt projection.Point) rest.MetricAggregate {
		v := valueOf(p.Metric, pt.Metrics)
		out := rest.MetricAggregate{Group: groupText(pt.Group), Count: pt.Runs, Sum: v.sum, Min: v.min, Max: v.max, P50: v.p50, P95: v.p95, P99: v.p99}
		if pt.Runs > 0 && p.Metric != rest.MetricNamePeakMemoryBytes {
			out.Mean = v.sum / float64(pt.Runs)
		}
		return out
	})}, nil
}

func healthOf(h projection.Health) rest.PipelineHealth {
	out := rest.PipelineHealth{
		Pipeline: h.PipelineName, PipelineId: h.Pipeline, State: h.State, LastRunId: h.LastRun, LastRunState: rest.RunState(h.LastState),
		LastSuccessAt: h.LastSuccessAt, LastFailureAt: h.LastFailureAt, FailuresInARow: h.FailuresInARow,
		ExpectedEverySeconds: h.Expected.Seconds(), Stale: h.Stale, Error: h.Error,
	}
	if h.Lag >= 0 {
		out.LagSeconds = h.Lag.Truncate(time.Millisecond).Seconds()
	}
	return out
}

// ListPipelineHealth lists the health of pipelines.
func (o *operations) ListPipelineHealth(ctx context.Context, r rest.ListPipelineHealthRequestObject) (rest.ListPipelineHealthResponseObject, error) {
	l, err := o.Metrics.Healths(ctx, actorOf(ctx), page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListPipelineHealth200JSONResponse{Items: each(l.Items, healthOf), Next: next(l.Next)}, nil
}

// GetPipelineHealth answers with the health of a pipeline.
func (o *operations) GetPipelineHealth(ctx context.Context, r rest.GetPipelineHealthRequestObject) (rest.GetPipelineHealthResponseObject, error) {
	id, err := o.Metrics.PipelineID(ctx, actorOf(ctx), r.Id.String())
	if err != nil {
		return nil, err
	}
	h, err := o.Metrics.Health(ctx, actorOf(ctx), id)
	if err != nil {
		return nil, err
	}
	return rest.GetPipelineHealth200JSONResponse(healthOf(h)), nil
}

// ListCosts lists what runs used and what that costs.
func (o *operations) ListCosts(ctx context.Context, r rest.ListCostsRequestObject) (rest.ListCostsResponseObject, error) {
	p := r.Params
	pipeline, err := o.Metrics.PipelineID(ctx, actorOf(ctx), p.Pipeline)
	if err != nil {
		return nil, err
	}
	by := string(p.GroupBy)
	if by == "" {
		by = "pipeline"
	}
	l, from, to, err := o.Metrics.Costs(ctx, actorOf(ctx), by, pipeline, p.From, p.To, page(p.Limit, p.After))
	if err != nil {
		return nil, err
	}
	const second, mibPerGiB = 1000, 1024
	return rest.ListCosts200JSONResponse{Items: each(l.Items, func(c projection.Cost) rest.Cost {
		group := c.Key
		if c.Name != "" {
			group = c.Name
		}
		return rest.Cost{
			Group: group, From: from, To: to, Runs: c.Runs, ComputeSeconds: float64(c.Compute) / second,
			MemoryGibSeconds: float64(c.MemoryTime) / second / mibPerGiB, Bytes: c.Bytes, Amount: c.Amount, Currency: o.Metrics.Prices.Currency,
		}
	}), Next: next(l.Next)}, nil
}

// GetRebuild tells how far the read models are behind.
func (o *operations) GetRebuild(ctx context.Context, _ rest.GetRebuildRequestObject) (rest.GetRebuildResponseObject, error) {
	n, err := o.Metrics.Waiting(ctx, actorOf(ctx))
	if err != nil {
		return nil, err
	}
	return rest.GetRebuild200JSONResponse{WaitingRuns: n}, nil
}

// StartRebuild makes the read models anew.
func (o *operations) StartRebuild(ctx context.Context, _ rest.StartRebuildRequestObject) (rest.StartRebuildResponseObject, error) {
	r, err := o.Metrics.Rebuild(ctx, actorOf(ctx))
	if err != nil {
		return nil, err
	}
	return rest.StartRebuild202JSONResponse{Id: r.ID, WaitingRuns: r.Waiting}, nil
}
