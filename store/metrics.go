package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/store/internal/db"
)

var _ projection.Reader = (*Projection)(nil)

// PipelineID finds a live pipeline by its name or id.
func (d *DB) PipelineID(ctx context.Context, a control.Actor, ref string) (uuid.UUID, error) {
	p, err := d.Pipeline(ctx, a.Organization, ref)
	return p.ID, err
}

// PipelineID implements [projection.Reader].
func (p *Projection) PipelineID(ctx context.Context, a control.Actor, ref string) (uuid.UUID, error) {
	return p.db.PipelineID(ctx, a, ref)
}

// PipelineID implements [schedules.Store].
func (s *Schedules) PipelineID(ctx context.Context, a control.Actor, ref string) (uuid.UUID, error) {
	return s.db.PipelineID(ctx, a, ref)
}

// PipelineID implements [notify.Store].
func (n *Notifications) PipelineID(ctx context.Context, a control.Actor, ref string) (uuid.UUID, error) {
	return n.db.PipelineID(ctx, a, ref)
}

// pipelineNames finds names by id, those of deleted pipelines too.
func pipelineNames(ctx context.Context, tx Tx, ids ...uuid.UUID) (map[uuid.UUID]string, error) {
	ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return id == uuid.Nil })
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.Q().PipelineNames(ctx, db.PipelineNamesParams{Organization: tx.Organization(), Ids: ids})
	out := make(map[uuid.UUID]string, len(rows))
	for _, r := range rows {
		out[r.ID] = r.Name
	}
	return out, err
}

// Metrics implements [projection.Reader].
func (p *Projection) Metrics(ctx context.Context, a control.Actor, query projection.Query, limit int) (out []projection.Point, err error) {
	by := func(d projection.Dimension) bool { return slices.Contains(query.By, d) }
	daysSince, daysBefore := wholeDays(query)
	params := db.SumMetricsParams{
		Organization: a.Organization, Bucket: query.Bucket, Since: query.From, Before: query.To, DaysSince: daysSince, DaysBefore: daysBefore,
		ByPipeline: by(projection.ByPipeline), ByConnector: by(projection.ByConnector), ByResource: by(projection.ByResource), ByStatus: by(projection.ByStatus),
		Resources: query.Resources(), Resource: query.Resource, Pipeline: optional(query.Pipeline), Connector: query.Connector, Status: query.Status,
		Count: int32(limit),
	}
	err = p.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().SumMetrics(ctx, params)
		if err != nil {
			return err
		}
		var durations []db.SumDurationsRow
		if query.Durations {
			durations, err = tx.Q().SumDurations(ctx, db.SumDurationsParams{
				Organization: params.Organization, Bucket: params.Bucket, Since: params.Since, Before: params.Before, DaysSince: daysSince, DaysBefore: daysBefore,
				ByPipeline: params.ByPipeline, ByConnector: params.ByConnector, ByResource: params.ByResource, ByStatus: params.ByStatus,
				Resources: params.Resources, Resource: params.Resource, Pipeline: params.Pipeline, Connector: params.Connector, Status: params.Status,
			})
			if err != nil {
				return err
			}
		}
		classes := map[bucketKey]map[int]int64{}
		for _, r := range durations {
			k := bucketKey{r.At.UnixMilli(), r.Pipeline, r.Connector, r.Resource, r.Status}
			if classes[k] == nil {
				classes[k] = map[int]int64{}
			}
			classes[k][int(r.Class)] += r.Endings
		}
		names, err := pipelineNames(ctx, tx, pipelinesOf(rows)...)
		out = nil
		for _, r := range rows {
			pt := projection.Point{Group: groupOf(query.By, r, names), Metrics: projection.Metrics{
				Runs: r.Runs, Read: r.RowsRead, Written: r.RowsWritten, Bytes: r.Bytes,
				Millis: r.DurationMs, MinMillis: r.MinMs, MaxMillis: r.MaxMs, Usage: projection.Usage{CPU: r.CpuMs}, PeakBytes: r.PeakBytes,
				Durations: classes[bucketKey{r.At.UnixMilli(), r.Pipeline, r.Connector, r.Resource, r.Status}],
			}}
			if query.Bucket != "" {
				pt.At = r.At.UTC()
			}
			out = append(out, pt)
		}
		return err
	})
	return out, err
}

// wholeDays are the days of UTC, if there are any, that an answer can be summed up
// of: the sums of the hours before and after them are needed singly.
func wholeDays(q projection.Query) (since, before time.Time) {
	since, before = q.From.Add(day-1).UTC().Truncate(day), q.To.UTC().Truncate(day)
	if q.Bucket == "hour" || !since.Before(before) {
		return q.From, q.From
	}
	return since, before
}

// bucketKey joins sums with their durations.
type bucketKey struct {
	at                                    int64
	pipeline, connector, resource, status string
}

func pipelinesOf(rows []db.SumMetricsRow) []uuid.UUID {
	var out []uuid.UUID
	for _, r := range rows {
		if id, err := uuid.Parse(r.Pipeline); err == nil {
			out = append(out, id)
		}
	}
	return out
}

func groupOf(by []projection.Dimension, r db.SumMetricsRow, names map[uuid.UUID]string) projection.Group {
	g := projection.Group{}
	for _, d := range by {
		switch d {
		case projection.ByPipeline:
			id, _ := uuid.Parse(r.Pipeline) // the zero one has no name
			g[d] = names[id]
		case projection.ByConnector:
			g[d] = r.Connector
		case projection.ByResource:
			g[d] = r.Resource
		case projection.ByStatus:
			g[d] = r.Status
		}
	}
	return g
}

// RoutesHealth implements [projection.Reader].
func (p *Projection) RoutesHealth(ctx context.Context, a control.Actor, pipeline uuid.UUID, page control.Page) (out []projection.RouteHealth, next string, err error) {
	const kind = "health"
	params := db.RouteHealthParams{Organization: a.Organization, Pipeline: optional(pipeline), Count: int32(page.Size() + 1)}
	if _, err := control.DecodeCursor(kind, page.After, &params.After); err != nil {
		return nil, "", err
	}
	err = p.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().RouteHealth(ctx, params)
		out, next = nil, ""
		pipelines, last := 0, ""
		for _, r := range rows {
			if r.Name != last {
				if pipelines++; pipelines > page.Size() {
					next = control.EncodeCursor(kind, last)
					break
				}
				last = r.Name
			}
			h := projection.RouteHealth{
				Pipeline: r.ID, PipelineName: r.Name, Paused: r.Paused, Route: r.RouteKey, CreatedAt: r.CreatedAt.UTC(), LastRun: r.LastRun, LastState: r.LastState,
				LastError: r.LastError, SuccessStartedAt: moment(r.SuccessStartedAt), SuccessEndedAt: moment(r.SuccessEndedAt),
				FailureEndedAt: moment(r.FailureEndedAt), Failures: int(r.Failures), Expected: time.Duration(r.ExpectedSeconds) * time.Second,
			}
			out = append(out, h)
		}
		return err
	})
	return out, next, err
}

// Costs implements [projection.Reader].
func (p *Projection) Costs(ctx context.Context, a control.Actor, by string, pipeline uuid.UUID, from, to time.Time, page control.Page) (out control.List[projection.Usages], err error) {
	kind := "costs by " + by
	params := db.SumCostsParams{Organization: a.Organization, By: by, Since: from, Before: to, Pipeline: optional(pipeline), Count: int32(page.Size() + 1)}
	if _, err := control.DecodeCursor(kind, page.After, &params.After); err != nil {
		return out, err
	}
	err = p.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().SumCosts(ctx, params)
		if err != nil {
			return err
		}
		found := make([]projection.Usages, 0, len(rows))
		var ids []uuid.UUID
		for _, r := range rows {
			found = append(found, projection.Usages{Key: r.Key, Runs: r.Runs, Compute: r.ComputeMs, MemoryTime: r.MemoryMibMs, Bytes: r.Bytes})
			if id, err := uuid.Parse(r.Key); err == nil && by == "pipeline" {
				ids = append(ids, id)
			}
		}
		names, err := pipelineNames(ctx, tx, ids...)
		for i := range found {
			if id, bad := uuid.Parse(found[i].Key); bad == nil {
				found[i].Name = names[id]
			}
		}
		out = control.PageOf(kind, page, found, func(u projection.Usages) any { return u.Key })
		return err
	})
	return out, err
}
