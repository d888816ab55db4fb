package ends

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/inspections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/internal/redact"
	"github.com/tranship-io/tranship/pipeline"
)

// Inspector executes inspections.
type Inspector struct {
	*Resolver
	// State gives an organization's state, for a validation to know where routes
	// stand; nil: it does not.
	State func(organization uuid.UUID) engine.State
	// GiveUp is how long connecting is tried, for somebody waits; 0 means 15 s.
	GiveUp time.Duration
}

var _ inspections.Executor = (*Inspector)(nil)

// Tested is the result of a test. A connection that cannot be opened is a finding,
// not a failed test.
type Tested struct {
	OK       bool             `json:"ok"`
	Identity string           `json:"identity,omitempty"`
	Findings []engine.Finding `json:"findings"`
}

// Discovered is the result of a discovery.
type Discovered struct {
	Resources []engine.Resource `json:"resources"`
}

// Ranked is the result of a look at columns.
type Ranked struct {
	Resource engine.Resource       `json:"resource"`
	Columns  []engine.CursorChoice `json:"columns"`
}

// Validated is the result of a validation.
type Validated struct {
	OK       bool              `json:"ok"`
	Problems []control.Problem `json:"problems"`
	Routes   []ValidatedRoute  `json:"routes"`
}

// ValidatedRoute is what a run of a route would do.
type ValidatedRoute struct {
	Route     string              `json:"route"`
	Source    string              `json:"source,omitempty"`
	Sink      string              `json:"sink,omitempty"`
	Resources []ValidatedResource `json:"resources"`
}

// ValidatedResource is what a run would do with a resource.
type ValidatedResource struct {
	Resource   string           `json:"resource"`
	Target     string           `json:"target"`
	Read       engine.ReadMode  `json:"read"`
	Write      engine.WriteMode `json:"write"`
	Key        []string         `json:"key"`
	Continues  bool             `json:"continues"`
	Rows       int64            `json:"estimated_rows"`
	Bytes      int64            `json:"estimated_bytes"`
	Statements []string         `json:"statements"`
	Coverage   string           `json:"coverage,omitempty"`
	Warnings   []string         `json:"warnings"`
}

// Inspect implements [inspections.Executor]. What it tells holds no secrets
// (invariant 10): connectors keep them out, and this is the last guard.
func (x *Inspector) Inspect(ctx context.Context, c inspections.Claimed) (any, error) {
	var secrets redact.Redactor
	result, err := x.inspect(ctx, c, secrets.Add)
	if err != nil {
		if clean := secrets.Text(err.Error()); clean != err.Error() {
			err = &engine.Error{Class: engine.ClassOf(err), Hint: secrets.Text(engine.HintOf(err)), Err: errors.New(clean)}
		}
		return nil, err
	}
	text, err := json.Marshal(result)
	if err != nil {
		return nil, engine.Bugf("write the result: %w", err)
	}
	return json.RawMessage(secrets.JSON(text)), nil
}

func (x *Inspector) inspect(ctx context.Context, c inspections.Claimed, learn func(secrets ...string)) (any, error) {
	if c.Kind == inspections.Validate {
		return x.validate(ctx, c, learn)
	}
	conn, err := x.Store.Connection(ctx, c.Organization, c.Connection.String())
	if err != nil {
		return nil, classified(err, "connection")
	}
	session, err := x.Session(ctx, c.Organization, conn, c.Overlay, engine.OpenOptions{Pipeline: "inspection", GiveUp: cmp.Or(x.GiveUp, 15*time.Second)}, learn)
	if c.Kind == inspections.Test {
		return test(ctx, session, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open connection %q: %w", conn.Name, err)
	}
	defer Close(session)
	src, ok := session.(engine.SourceSession)
	if !ok {
		return nil, engine.Permanentf("", "the connection %q is no source", conn.Name)
	}
	if c.Kind == inspections.Columns {
		return columns(ctx, src, c.Resource)
	}
	var patterns []string
	if c.Pattern != "" {
		patterns = []string{c.Pattern}
	}
	found, err := src.Discover(ctx, patterns)
	if err != nil {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	slices.SortFunc(found, func(a, b engine.Resource) int { return strings.Compare(a.Name, b.Name) })
	if found == nil {
		found = []engine.Resource{}
	}
	return Discovered{Resources: found}, nil
}

func test(ctx context.Context, session Closer, err error) (any, error) {
	out := Tested{Findings: []engine.Finding{}}
	fail := func(subject string, err error) {
		message, hint := plain(err)
		out.Findings = append(out.Findings, engine.Finding{Level: "error", Subject: subject, Message: message, Hint: hint})
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		fail("connection", err)
		return out, nil
	}
	defer Close(session)
	if named, ok := session.(interface{ Identity() string }); ok {
		out.Identity = named.Identity()
	}
	if tester, ok := session.(engine.ConnectionTester); ok {
		findings, err := tester.TestConnection(ctx)
		out.Findings = append(out.Findings, findings...)
		if err != nil {
			fail("connection", err)
		}
	} else if src, ok := session.(engine.SourceSession); ok {
		if _, err := src.Discover(ctx, nil); err != nil {
			fail("discover", err)
		}
	}
	out.OK = !slices.ContainsFunc(out.Findings, func(f engine.Finding) bool { return f.Level == "error" })
	return out, ctx.Err()
}

func columns(ctx context.Context, src engine.SourceSession, name string) (any, error) {
	r, err := FindResource(ctx, src, name)
	if err != nil {
		return nil, err
	}
	out := Ranked{Resource: r, Columns: []engine.CursorChoice{}}
	if ranker, ok := src.(engine.CursorRanker); ok {
		if out.Columns, err = ranker.RankCursors(ctx, r.Name); err != nil {
			return nil, fmt.Errorf("rank the columns of %s: %w", r.Name, err)
		}
	}
	return out, nil
}

// FindResource finds one resource by the name that a user writes.
func FindResource(ctx context.Context, src engine.SourceSession, name string) (engine.Resource, error) {
	found, err := src.Discover(ctx, []string{name})
	if err != nil {
		return engine.Resource{}, fmt.Errorf("discover %s: %w", name, err)
	}
	one := &pipeline.Document{Resources: []pipeline.Resource{{Name: name}}}
	selected, err := one.Expand(found)
	if err != nil {
		if all, again := src.Discover(ctx, nil); again == nil {
			selected, err = one.Expand(all)
		}
	}
	if err != nil {
		return engine.Resource{}, err
	}
	if len(selected) != 1 {
		return engine.Resource{}, engine.Permanentf("name a single one", "%q stands for %d resources", name, len(selected))
	}
	return selected[0].Resource, nil
}

// validation collects what is found out about a pipeline.
type validation struct {
	x     *Inspector
	c     inspections.Claimed
	learn func(secrets ...string)
	g     pipelines.Graph
	out   Validated
	// written has the first edge that writes to a target, by sink and target.
	written map[string]string
}

func (x *Inspector) validate(ctx context.Context, c inspections.Claimed, learn func(secrets ...string)) (any, error) {
	version, err := x.Store.PipelineVersion(ctx, c.Organization, c.Pipeline, c.Number)
	if err != nil {
		return nil, classified(err, "pipeline")
	}
	v := validation{x: x, c: c, learn: learn, g: version.Graph, out: Validated{Problems: []control.Problem{}, Routes: []ValidatedRoute{}}, written: map[string]string{}}
	for _, r := range version.Routes {
		pair, err := v.g.PairOf(r.Key)
		if err != nil {
			return nil, engine.Bugf("find route %s: %w", r.Key, err)
		}
		v.route(ctx, r, pair)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	v.out.OK = len(v.out.Problems) == 0
	return v.out, nil
}

func (v *validation) fail(path string, err error) {
	message, hint := plain(err)
	v.out.Problems = append(v.out.Problems, control.Problem{Path: path, Message: message, Hint: hint})
}

// route plans all resources of a route and changes nothing.
func (v *validation) route(ctx context.Context, r pipelines.Route, pair pipelines.Pair) {
	// The route's name begins with a name that the pipeline had.
	name, _, _ := strings.Cut(r.Name, "/")
	e, err := v.x.Ends(ctx, Route{Organization: v.c.Organization, Pipeline: v.c.Pipeline, Name: name, Number: v.c.Number, Key: r.Key})
	if err != nil {
		v.fail("edges["+fmt.Sprint(pair.Edges[0])+"]", err)
		return
	}
	v.learn(e.Secrets()...)
	src, err := e.OpenSource(ctx, engine.OpenOptions{})
	if err != nil {
		v.fail(v.g.NodePath(pair.From), fmt.Errorf("open source: %w", err))
		return
	}
	selected, err := e.Choose(ctx, src)
	Close(src)
	var bad *pipeline.Error
	switch {
	case errors.As(err, &bad):
		for _, p := range bad.Problems {
			v.out.Problems = append(v.out.Problems, control.Problem{Path: v.g.Place(pair, p.Path), Message: p.Message, Hint: p.Hint})
		}
		return
	case err != nil:
		v.fail(v.g.NodePath(pair.From), err)
		return
	}
	opt := runner.Options{OpenSource: e.OpenSource, OpenSink: e.OpenSink, Pipeline: e.name(), Version: e.Doc.Hash(), Resources: e.Requests(selected), Settings: Settings(e.Doc.Settings)}
	if v.x.State != nil {
		opt.State = v.x.State(v.c.Organization)
	}
	found, err := runner.Preview(ctx, opt)
	if err != nil {
		v.fail(v.g.NodePath(pair.To), err)
		return
	}
	route := ValidatedRoute{Route: r.Key, Source: found.Source, Sink: found.Sink, Resources: []ValidatedResource{}}
	for i, p := range found.Resources {
		at := v.edge(pair, selected[i].By)
		if p.Err != nil {
			v.fail(at, p.Err)
			continue
		}
		t := p.Plan.Target
		if first, twice := v.written[found.Sink+"\x00"+t.Name]; twice {
			v.out.Problems = append(v.out.Problems, control.Problem{Path: at, Message: fmt.Sprintf("%s would be written to %s, as by %s", p.Request.Resource, t.Name, first),
				Hint: "give one of them another target"})
		} else {
			v.written[found.Sink+"\x00"+t.Name] = at
		}
		route.Resources = append(route.Resources, ValidatedResource{
			Resource: p.Request.Resource, Target: t.Name, Read: p.Request.Read, Write: p.Request.Write, Key: append([]string{}, p.Plan.Source.Resource.Schema.Key...),
			Continues: p.Continues, Rows: p.Plan.Source.Rows, Bytes: p.Plan.Source.Bytes, Statements: append([]string{}, t.Statements...),
			Coverage: p.Plan.Source.Coverage, Warnings: append(append([]string{}, p.Plan.Source.Warnings...), t.Warnings...),
		})
	}
	v.out.Routes = append(v.out.Routes, route)
}

// edge is the path of the edge that chose a resource.
func (v *validation) edge(pair pipelines.Pair, by string) string {
	for _, i := range pair.Edges {
		if e := v.g.Edges[i]; e.Resource == by || e.Pattern == by {
			return fmt.Sprintf("edges[%d]", i)
		}
	}
	return "edges"
}

// plain takes an error's hint apart from its text.
func plain(err error) (message, hint string) {
	hint = engine.HintOf(err)
	message = strings.ReplaceAll(err.Error(), " ("+hint+")", "")
	return message, hint
}
