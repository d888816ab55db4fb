package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/store/internal/db"
)

var _ pipelines.Store = (*DB)(nil)

const kindPipeline = "pipeline"

const (
	listPipelines        = "pipelines"
	listPipelineVersions = "pipeline versions"
)

// CreatePipeline implements [pipelines.Store].
func (d *DB) CreatePipeline(ctx context.Context, a control.Actor, c pipelines.Change) (out pipelines.Pipeline, err error) {
	err = d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		id, first, err := once(ctx, tx, kindPipeline, c.ID)
		if err != nil {
			return err
		}
		if first {
			out, err = createPipeline(ctx, tx, a, c)
			return err
		}
		out, err = pipelineByID(ctx, tx, id)
		return err
	})
	return out, err
}

func createPipeline(ctx context.Context, tx Tx, a control.Actor, c pipelines.Change) (pipelines.Pipeline, error) {
	var out pipelines.Pipeline
	if err := holdConnections(ctx, tx, c); err != nil {
		return out, err
	}
	row, err := tx.Q().InsertPipeline(ctx, db.InsertPipelineParams{Organization: tx.Organization(), ID: c.ID, Name: c.Name, Description: c.Description})
	if err != nil {
		return out, nameTaken(err, "pipelines_name", kindPipeline, c.Name)
	}
	if err := insertVersion(ctx, tx, a, 1, c); err != nil {
		return out, err
	}
	if out, err = wholePipeline(ctx, tx, row); err != nil {
		return out, err
	}
	err = auditPipeline(ctx, tx, a, "pipeline.create", nil, &out)
	return out, err
}

// holdConnections keeps the connections of a graph from ending before the
// transaction does. Connections are locked before pipelines, in the order of their
// ids.
func holdConnections(ctx context.Context, tx Tx, c pipelines.Change) error {
	found, err := tx.Q().ShareConnections(ctx, db.ShareConnectionsParams{Organization: tx.Organization(), Ids: c.Uses})
	if err != nil {
		return fmt.Errorf("find the connections of pipeline %q: %w", c.Name, err)
	}
	for i, n := range c.Graph.Nodes {
		id, err := uuid.Parse(n.Connection)
		if err != nil || !slices.Contains(found, id) {
			return control.Invalid(fmt.Sprintf("nodes[%d].connection", i), "choose another one", "the connection %q is not there any more", n.Connection)
		}
	}
	return nil
}

// insertVersion stores a version; the pipeline's row is locked.
func insertVersion(ctx context.Context, tx Tx, a control.Actor, number int64, c pipelines.Change) error {
	q, organization := tx.Q(), tx.Organization()
	graph, err := json.Marshal(c.Graph)
	if err != nil {
		return fmt.Errorf("write graph: %w", err)
	}
	err = q.InsertPipelineVersion(ctx, db.InsertPipelineVersionParams{Organization: organization, Pipeline: c.ID, Number: number, Hash: c.Hash, Graph: graph, CreatedBy: a.Name})
	if err != nil {
		return fmt.Errorf("store version %d of pipeline %q: %w", number, c.Name, err)
	}
	for _, id := range c.Uses {
		if err := q.InsertPipelineUse(ctx, db.InsertPipelineUseParams{Organization: organization, Pipeline: c.ID, Number: number, Connection: id}); err != nil {
			return fmt.Errorf("store version %d of pipeline %q: %w", number, c.Name, err)
		}
	}
	for i, r := range c.Routes {
		name, err := routeName(ctx, tx, c.ID, r)
		if err != nil {
			return err
		}
		err = q.InsertPipelineRoute(ctx, db.InsertPipelineRouteParams{Organization: organization, Pipeline: c.ID, Number: number, RouteKey: r.Key,
			Position: int32(i), Source: r.From, Sink: r.To, Name: name, Hash: r.Hash})
		if err != nil {
			return fmt.Errorf("store route %s of pipeline %q: %w", r.Key, c.Name, err)
		}
	}
	return nil
}

// routeName returns the name that a route has, or gives it the first that is free.
func routeName(ctx context.Context, tx Tx, pipeline uuid.UUID, r pipelines.Wanted) (string, error) {
	q := tx.Q()
	name, err := q.GetRouteName(ctx, db.GetRouteNameParams{Organization: tx.Organization(), Pipeline: pipeline, RouteKey: r.Key})
	if err == nil || !errors.Is(err, pgx.ErrNoRows) {
		return name, err
	}
	for _, name := range r.Names {
		n, err := q.InsertRouteName(ctx, db.InsertRouteNameParams{Organization: tx.Organization(), Pipeline: pipeline, RouteKey: r.Key, Name: name})
		if err != nil {
			return "", fmt.Errorf("name route %s: %w", r.Key, err)
		}
		if n == 1 {
			return name, nil
		}
	}
	return "", &control.ConflictError{Code: "name_taken", Message: fmt.Sprintf("another pipeline's route is remembered as %q", r.Names[len(r.Names)-1]),
		Hint: "name the pipeline or its nodes otherwise"}
}

// UpdatePipeline implements [pipelines.Store].
func (d *DB) UpdatePipeline(ctx context.Context, a control.Actor, version int64, c pipelines.Change) (out pipelines.Pipeline, err error) {
	err = d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		out, err = updatePipeline(ctx, tx, a, version, c)
		return err
	})
	return out, err
}

func updatePipeline(ctx context.Context, tx Tx, a control.Actor, version int64, c pipelines.Change) (pipelines.Pipeline, error) {
	var out pipelines.Pipeline
	if err := holdConnections(ctx, tx, c); err != nil {
		return out, err
	}
	before, err := lockPipeline(ctx, tx, c.ID, version)
	if err != nil {
		return out, err
	}
	number := before.Current.Number
	same, err := c.Graph.Equal(before.Current.Graph)
	if err != nil {
		return out, err
	}
	if !same {
		number++
		if err := insertVersion(ctx, tx, a, number, c); err != nil {
			return out, err
		}
	} else if before.Name == c.Name && before.Description == c.Description {
		return before, nil
	}
	row, err := tx.Q().UpdatePipeline(ctx, db.UpdatePipelineParams{Organization: tx.Organization(), ID: c.ID, Name: c.Name, Description: c.Description, Current: number})
	if err != nil {
		return out, nameTaken(err, "pipelines_name", kindPipeline, c.Name)
	}
	if out, err = wholePipeline(ctx, tx, row); err != nil {
		return out, err
	}
	err = auditPipeline(ctx, tx, a, "pipeline.update", &before, &out)
	return out, err
}

// lockPipeline locks a live pipeline whose version is the given one; 0: any.
func lockPipeline(ctx context.Context, tx Tx, id uuid.UUID, version int64) (pipelines.Pipeline, error) {
	row, err := tx.Q().LockPipeline(ctx, db.LockPipelineParams{Organization: tx.Organization(), ID: id})
	if err != nil {
		return pipelines.Pipeline{}, notFound(err, kindPipeline, id.String())
	}
	if version != 0 && row.Version != version {
		return pipelines.Pipeline{}, &control.StaleVersionError{Kind: kindPipeline, Ref: row.Name, Given: version, Current: row.Version}
	}
	return wholePipeline(ctx, tx, row)
}

// Apply implements [pipelines.Store].
func (d *DB) Apply(ctx context.Context, a control.Actor, x pipelines.Applied) error {
	return d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		for _, c := range x.Connections {
			var err error
			switch {
			case c.SecretsOnly:
				if _, err = lockConnection(ctx, tx, c.Connection.ID, c.Version); err == nil {
					err = putOwnSecrets(ctx, tx, c.Connection.ID, c.Own)
				}
				if err == nil {
					err = audit(ctx, tx, control.AuditEntry{Actor: a, Action: "connection.secrets", Kind: kindConnection, Object: c.Connection.ID})
				}
			case c.Version == 0:
				_, err = createConnection(ctx, tx, a, c.Change)
			default:
				_, err = updateConnection(ctx, tx, a, c.Version, c.Change)
			}
			if err != nil {
				return err
			}
		}
		var err error
		switch {
		case x.Pipeline == nil:
		case x.Version == 0:
			_, err = createPipeline(ctx, tx, a, *x.Pipeline)
		default:
			_, err = updatePipeline(ctx, tx, a, x.Version, *x.Pipeline)
		}
		return err
	})
}

// SetPaused implements [pipelines.Store].
func (d *DB) SetPaused(ctx context.Context, a control.Actor, id uuid.UUID, paused bool) (out pipelines.Pipeline, err error) {
	err = d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		before, err := lockPipeline(ctx, tx, id, 0)
		if err != nil {
			return err
		}
		if out = before; before.Paused == paused {
			return nil
		}
		row, err := tx.Q().SetPipelinePaused(ctx, db.SetPipelinePausedParams{Organization: tx.Organization(), ID: id, Paused: paused})
		if err != nil {
			return fmt.Errorf("pause pipeline %q: %w", before.Name, err)
		}
		out.Paused, out.Version, out.UpdatedAt = row.Paused, row.Version, row.UpdatedAt
		action := "pipeline.resume"
		if paused {
			action = "pipeline.pause"
		}
		return auditPipeline(ctx, tx, a, action, &before, &out)
	})
	return out, err
}

// DeletePipeline implements [pipelines.Store].
func (d *DB) DeletePipeline(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error {
	return d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		before, err := lockPipeline(ctx, tx, id, version)
		if err != nil {
			return err
		}
		q := tx.Q()
		run, err := q.OpenRunOf(ctx, db.OpenRunOfParams{Organization: tx.Organization(), Pipeline: id})
		if err == nil {
			return &control.ConflictError{Code: "in_use", State: run.State, Message: fmt.Sprintf("run %s of pipeline %q is %s", run.ID, before.Name, run.State), Hint: "wait until it ends, or cancel it"}
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("find runs of pipeline %q: %w", before.Name, err)
		}
		err = q.DeletePipeline(ctx, db.DeletePipelineParams{Organization: tx.Organization(), ID: id})
		if err == nil {
			err = q.DeleteRouteNames(ctx, db.DeleteRouteNamesParams{Organization: tx.Organization(), Pipeline: id})
		}
		if err != nil {
			return fmt.Errorf("delete pipeline %q: %w", before.Name, err)
		}
		return auditPipeline(ctx, tx, a, "pipeline.delete", &before, nil)
	})
}

// holdPipeline lets a transaction begin runs of a pipeline: it neither ends nor is
// paused before they are there. One that is not stored has nothing to hold.
func holdPipeline(ctx context.Context, tx Tx, id uuid.UUID) error {
	p, err := tx.Q().HoldPipeline(ctx, db.HoldPipelineParams{Organization: tx.Organization(), ID: id})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("hold pipeline %s: %w", id, err)
	case p.DeletedAt != nil:
		return &control.NotFoundError{Kind: kindPipeline, Ref: p.Name}
	case p.Paused:
		return &control.ConflictError{Code: "pipeline_paused", State: "paused", Message: fmt.Sprintf("pipeline %q is paused", p.Name), Hint: "resume the pipeline first"}
	}
	return nil
}

func auditPipeline(ctx context.Context, tx Tx, a control.Actor, action string, before, after *pipelines.Pipeline) error {
	e := control.AuditEntry{Actor: a, Action: action, Kind: kindPipeline}
	for _, p := range []*pipelines.Pipeline{before, after} {
		if p != nil {
			e.Object = p.ID
		}
	}
	if err := describe(&e, before, after); err != nil {
		return err
	}
	return audit(ctx, tx, e)
}

// Pipeline implements [pipelines.Store].
func (d *DB) Pipeline(ctx context.Context, organization uuid.UUID, ref string) (out pipelines.Pipeline, err error) {
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		out, err = pipelineByRef(ctx, tx, ref)
		return err
	})
	return out, err
}

// pipelineByRef finds a live pipeline by id or name.
func pipelineByRef(ctx context.Context, tx Tx, ref string) (pipelines.Pipeline, error) {
	if id, bad := uuid.Parse(ref); bad == nil {
		return pipelineByID(ctx, tx, id)
	}
	row, err := tx.Q().GetPipelineByName(ctx, db.GetPipelineByNameParams{Organization: tx.Organization(), Name: text(ref)})
	if err != nil {
		return pipelines.Pipeline{}, notFound(err, kindPipeline, ref)
	}
	return wholePipeline(ctx, tx, row)
}

func pipelineByID(ctx context.Context, tx Tx, id uuid.UUID) (pipelines.Pipeline, error) {
	row, err := tx.Q().GetPipeline(ctx, db.GetPipelineParams{Organization: tx.Organization(), ID: id})
	if err != nil {
		return pipelines.Pipeline{}, notFound(err, kindPipeline, id.String())
	}
	return wholePipeline(ctx, tx, row)
}

// Pipelines implements [pipelines.Store].
func (d *DB) Pipelines(ctx context.Context, organization uuid.UUID, f pipelines.Filter, p control.Page) (out control.List[pipelines.Pipeline], err error) {
	after, err := textCursor(listPipelines, p)
	if err != nil {
		return out, err
	}
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListPipelines(ctx, db.ListPipelinesParams{Organization: organization, After: after, Name: text(f.Name), Connection: f.Connection, Lim: int32(p.Size() + 1)})
		if err != nil {
			return fmt.Errorf("list pipelines: %w", err)
		}
		items, err := wholePipelines(ctx, tx, rows)
		out = control.PageOf(listPipelines, p, items, func(p pipelines.Pipeline) any { return p.Name })
		return err
	})
	return out, err
}

// PipelineVersion implements [pipelines.Store].
func (d *DB) PipelineVersion(ctx context.Context, organization, id uuid.UUID, number int64) (out pipelines.Version, err error) {
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		out, err = pipelineVersion(ctx, tx, id, number)
		return err
	})
	return out, err
}

func pipelineVersion(ctx context.Context, tx Tx, id uuid.UUID, number int64) (pipelines.Version, error) {
	row, err := tx.Q().GetPipelineVersion(ctx, db.GetPipelineVersionParams{Organization: tx.Organization(), Pipeline: id, Number: number})
	if err != nil {
		return pipelines.Version{}, notFound(err, "version", strconv.FormatInt(number, 10))
	}
	out, err := wholeVersions(ctx, tx, []db.PipelineVersion{row})
	if err != nil {
		return pipelines.Version{}, err
	}
	return out[0], nil
}

// PipelineVersions implements [pipelines.Store].
func (d *DB) PipelineVersions(ctx context.Context, organization, id uuid.UUID, p control.Page) (out control.List[pipelines.Version], err error) {
	before, err := numberCursor(listPipelineVersions, p, math.MaxInt64)
	if err != nil {
		return out, err
	}
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListPipelineVersions(ctx, db.ListPipelineVersionsParams{Organization: organization, Pipeline: id, Before: before, Lim: int32(p.Size() + 1)})
		if err != nil {
			return fmt.Errorf("list versions of pipeline %s: %w", id, err)
		}
		items, err := wholeVersions(ctx, tx, rows)
		out = control.PageOf(listPipelineVersions, p, items, func(v pipelines.Version) any { return v.Number })
		return err
	})
	return out, err
}

// wholePipeline adds the current version to a row.
func wholePipeline(ctx context.Context, tx Tx, r db.Pipeline) (pipelines.Pipeline, error) {
	out, err := wholePipelines(ctx, tx, []db.Pipeline{r})
	if err != nil {
		return pipelines.Pipeline{}, err
	}
	return out[0], nil
}

// wholePipelines adds their current versions to rows, in two statements for all.
func wholePipelines(ctx context.Context, tx Tx, rows []db.Pipeline) ([]pipelines.Pipeline, error) {
	ids, numbers := make([]uuid.UUID, len(rows)), make([]int64, len(rows))
	for i, r := range rows {
		ids[i], numbers[i] = r.ID, r.Current
	}
	found, err := tx.Q().PipelineVersions(ctx, db.PipelineVersionsParams{Organization: tx.Organization(), Pipelines: ids, Numbers: numbers})
	if err != nil {
		return nil, fmt.Errorf("read current versions of pipelines: %w", err)
	}
	versions, err := wholeVersions(ctx, tx, found)
	if err != nil {
		return nil, err
	}
	current := make(map[uuid.UUID]pipelines.Version, len(found))
	for i, v := range found {
		current[v.Pipeline] = versions[i]
	}
	return each(rows, func(r db.Pipeline) (pipelines.Pipeline, error) {
		v, ok := current[r.ID]
		if !ok {
			return pipelines.Pipeline{}, fmt.Errorf("pipeline %s has no version %d, which is its current one", r.ID, r.Current)
		}
		return pipelines.Pipeline{ID: r.ID, Name: r.Name, Description: r.Description, Paused: r.Paused, Version: r.Version, Current: v,
			CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}, nil
	})
}

// wholeVersions adds their routes to rows, in one statement for all.
func wholeVersions(ctx context.Context, tx Tx, rows []db.PipelineVersion) ([]pipelines.Version, error) {
	ids, numbers := make([]uuid.UUID, len(rows)), make([]int64, len(rows))
	for i, r := range rows {
		ids[i], numbers[i] = r.Pipeline, r.Number
	}
	found, err := tx.Q().PipelineRoutes(ctx, db.PipelineRoutesParams{Organization: tx.Organization(), Pipelines: ids, Numbers: numbers})
	if err != nil {
		return nil, fmt.Errorf("read routes of pipelines: %w", err)
	}
	type version struct {
		pipeline uuid.UUID
		number   int64
	}
	routes := map[version][]pipelines.Route{}
	for _, x := range found {
		of := version{x.Pipeline, x.Number}
		routes[of] = append(routes[of], pipelines.Route{Key: x.RouteKey, From: x.Source, To: x.Sink, Name: x.Name, Hash: x.Hash})
	}
	return each(rows, func(r db.PipelineVersion) (pipelines.Version, error) {
		v := pipelines.Version{Number: r.Number, Hash: r.Hash, CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy, Routes: routes[version{r.Pipeline, r.Number}]}
		if err := json.Unmarshal(r.Graph, &v.Graph); err != nil {
			return v, fmt.Errorf("read version %d of pipeline %s: %w", r.Number, r.Pipeline, err)
		}
		return v, nil
	})
}
