package pgsink

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

var _ engine.ChangeSink = (*Session)(nil)

// PlanStream implements engine.ChangeSink.
func (s *Session) PlanStream(_ context.Context, req engine.StreamTargetRequest) (*engine.Target, error) {
	return &engine.Target{
		Route: req.Route, RunID: req.RunID, Ordinal: req.Ordinal, Resource: engine.StreamResource, Name: "the change stream",
		Read: engine.ReadCDC, Technique: "applied by transactions of the source, some or many at once", EpochBytes: streamEpochBytes, Detail: []byte("{}"),
	}, nil
}

// streamEpochBytes: an epoch's changes are folded in memory.
const streamEpochBytes = 8 << 20

// merge plans a member of a change stream: what its changes are merged into, and
// if its rows have to be read, staging for them and a table for the changes until
// they are.
func (p *planner) merge(ctx context.Context) error {
	if err := p.checkChanges(); err != nil {
		return err
	}
	if len(p.req.Plan.Splits) == 0 {
		p.t.Technique = "changes merged by key in each epoch"
		if p.exists != nil && !p.exists.unique(p.d.Key) {
			return engine.Permanentf(fmt.Sprintf("run: CREATE UNIQUE INDEX ON %s (%s)", p.d.place().sql(), idents("", p.d.Key)),
				"merge into %s needs a unique index on its key (%s)", p.t.Name, strings.Join(p.d.Key, ", "))
		}
		return nil
	}
	if err := p.replace(ctx); err != nil {
		return err
	}
	p.t.Technique = "rows " + p.t.Technique + "; changes merged by key in each epoch"
	p.d.Delta = stagingName(p.t, "delta_"+p.d.Table)
	return nil
}

// checkChanges refuses what changes can't be merged with exactly.
func (p *planner) checkChanges() error {
	switch {
	case p.req.Lineage:
		return engine.Permanentf("remove lineage", "%s: changes carry no lineage columns", p.t.Resource)
	case p.req.Verify == engine.VerifyDigest:
		return engine.Permanentf("use verify: counts", "%s: changes are not read back; verify: digest is for reads of tables", p.t.Resource)
	}
	for i := range p.d.Columns {
		c := &p.d.Columns[i]
		switch {
		case c.Text:
			return engine.Permanentf("exclude the column", "%s: values of column %q (%s) travel as text, which change streams can't", p.t.Resource, c.Source, c.Value.SQL)
		case c.test("x") != "":
			return engine.Permanentf("let the target's column be of the source's type and take NULL", "%s: not every value of column %q fits into %s, and a change stream can't apply value policies", p.t.Resource, c.Source, p.t.Name)
		}
	}
	if f := slices.IndexFunc(p.schema.Fields, func(f schema.Field) bool { return f.Generated }); f >= 0 && !p.d.Columns[f].Generated {
		return engine.Permanentf("exclude the column, or let the target compute it too", "%s: column %q is generated at the source, whose changes don't carry it", p.t.Resource, p.schema.Fields[f].Name)
	}
	return nil
}
