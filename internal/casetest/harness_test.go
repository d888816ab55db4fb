package casetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/internal/pgtest"
	"github.com/tranship-io/tranship/pipeline"
	"github.com/tranship-io/tranship/store/sqlite"
)

// TestMain runs everything in a time zone with odd minutes, so that a value that
// passes through local time anywhere is seen (case 11).
func TestMain(m *testing.M) {
	zone, err := time.LoadLocation("Asia/Kathmandu")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	time.Local = zone
	_ = os.Setenv("TZ", "Asia/Kathmandu")
	pgtest.Main(m)
}

// place is one user's place: two databases, a folder, a state file.
type place struct {
	t        *testing.T
	src, dst *db
	dir      string
	state    string
	log      *buffer
	// more are sources beside the built-in ones.
	more []engine.Source
	// during, if set, is the context of the next runs.
	during context.Context
}

func newPlace(t *testing.T) *place {
	t.Helper()
	srv := pgtest.Shared(t)
	return placeOn(t, pgtest.NewDatabase(t, srv), pgtest.NewDatabase(t, srv))
}

func placeOn(t *testing.T, src, dst string) *place {
	t.Helper()
	dir := t.TempDir()
	return &place{t: t, src: newDB(t, src), dst: newDB(t, dst), dir: dir, state: filepath.Join(dir, "state", "state.db"), log: &buffer{}}
}

// toPostgres is the sink of most documents.
const toPostgres = `{connector: postgres, url: "${SINK_URL}"}`

// toFiles is a files sink in the place's folder.
func (p *place) toFiles(format string) string {
	return fmt.Sprintf("{connector: files, path: '%s', format: %s}", p.folder(format), format)
}

func (p *place) folder(format string) string { return filepath.Join(p.dir, format) }

// doc writes a document; resources are entries in YAML's flow style.
func doc(sink, settings string, resources ...string) string {
	return "version: 1\nname: cases\nsource: {connector: postgres, url: \"${SOURCE_URL}\"}\nsink: " + sink +
		"\nresources:\n  - " + strings.Join(resources, "\n  - ") + "\nsettings: {" + settings + "}\n"
}

// Settings of documents: digest reads everything back; quick gives up at once.
const (
	digest = "verify: digest"
	quick  = "verify: digest, connect_timeout: 1s, retry: {attempts: 1, give_up: 1ms}"
)

// outcome is how a run ended.
type outcome struct {
	*runner.Result
	err error
}

// receipt returns the receipt of the run's only or named resource.
func (o *outcome) receipt(t *testing.T, name ...string) engine.ResourceReceipt {
	t.Helper()
	require.NotNil(t, o.Result, "%v", o.err)
	require.NotNil(t, o.Receipt)
	if len(name) == 0 {
		require.Len(t, o.Receipt.Resources, 1)
		return o.Receipt.Resources[0]
	}
	i := slices.IndexFunc(o.Receipt.Resources, func(r engine.ResourceReceipt) bool { return r.Resource == name[0] })
	require.GreaterOrEqual(t, i, 0)
	return o.Receipt.Resources[i]
}

// counts are a receipt's policies by "column policy".
func counts(r engine.ResourceReceipt) map[string]int64 {
	out := map[string]int64{}
	for _, c := range r.Policies {
		out[c.Column+" "+string(c.Policy)] += c.Count
	}
	return out
}

// change adapts the options of one run.
type change func(*runner.Options)

// smallSteps makes batches and epochs as small as they can be.
func smallSteps(o *runner.Options) { o.Settings.BatchBytes, o.Settings.EpochBytes = 1, 1 }

// oneSlot makes resources follow one another in the document's order.
func oneSlot(o *runner.Options) { o.Settings.Slots = 1 }

func restart(o *runner.Options) { o.Restart = true }

// run does what the command run does: read the document, choose resources, run.
// Whatever happens, no secret is in what it leaves (invariant 10).
func (p *place) run(text string, changes ...change) *outcome {
	p.t.Helper()
	res, err := p.try(text, changes)
	out := &outcome{res, err}
	var said strings.Builder
	said.WriteString(p.log.String())
	if err != nil {
		said.WriteString(err.Error())
	}
	if res != nil && res.Receipt != nil {
		body, jerr := json.Marshal(res.Receipt)
		require.NoError(p.t, jerr)
		said.Write(body)
		if res.Receipt.State == engine.StateCompleted {
			p.checkComplete(res.Receipt)
		}
	}
	for _, d := range []*db{p.src, p.dst} {
		if d != nil && d.password != "" {
			require.NotContains(p.t, said.String(), d.password)
		}
	}
	return out
}

// must runs to completion.
func (p *place) must(text string, changes ...change) *outcome {
	p.t.Helper()
	out := p.run(text, changes...)
	require.NoError(p.t, out.err, "%s", p.log)
	require.Equal(p.t, engine.StateCompleted, out.Run.State)
	return out
}

// fails runs and returns the error's text.
func (p *place) fails(text string, changes ...change) string {
	p.t.Helper()
	out := p.run(text, changes...)
	require.Error(p.t, out.err)
	if out.Result != nil {
		require.Equal(p.t, engine.StateFailed, out.Run.State)
	}
	return out.err.Error()
}

// checkComplete holds rule 1 of the cases over a completed run's receipt.
func (p *place) checkComplete(r *engine.RunReceipt) {
	p.t.Helper()
	for _, x := range r.Resources {
		require.Equal(p.t, "published", x.State, x.Resource)
		require.Equal(p.t, x.RowsRead, x.RowsWritten+x.RowsSuperseded+x.RowsSkipped+x.RowsSetAside, x.Resource)
		if x.Verified == string(engine.VerifyDigest) {
			require.NotNil(p.t, x.DestinationDigest)
			require.Equal(p.t, x.SourceDigest, *x.DestinationDigest, x.Resource)
		}
	}
}

func (p *place) try(text string, changes []change) (*runner.Result, error) {
	ctx := p.t.Context()
	if p.during != nil {
		ctx = p.during
	}
	cat := catalog.New(io.Discard)
	sources := cat.SourceSpecs()
	for _, s := range p.more {
		sources = append(sources, s.Spec())
	}
	d, err := pipeline.Parse([]byte(text), pipeline.Options{Env: p.env, Sources: sources, Sinks: cat.SinkSpecs()})
	if err != nil {
		return nil, err
	}
	source, ok := cat.Source(d.Source.Connector)
	if i := slices.IndexFunc(p.more, func(s engine.Source) bool { return s.Spec().Name == d.Source.Connector }); i >= 0 {
		source, ok = p.more[i], true
	}
	require.True(p.t, ok)
	sink, ok := cat.Sink(d.Sink.Connector)
	require.True(p.t, ok)
	giveUp := time.Duration(d.Settings.ConnectTimeout)
	o := runner.Options{
		OpenSource: func(ctx context.Context, opt engine.OpenOptions) (engine.SourceSession, error) {
			opt.GiveUp = giveUp
			return source.Open(ctx, d.Source.Resolved(), opt)
		},
		OpenSink: func(ctx context.Context, opt engine.OpenOptions) (engine.SinkSession, error) {
			opt.GiveUp = giveUp
			return sink.Open(ctx, d.Sink.Resolved(), opt)
		},
		Pipeline: d.Name, Version: d.Hash(), Holder: "casetest",
		Settings: runner.Settings{
			Slots: d.Settings.Slots, Memory: int64(d.Settings.Memory), AttemptTime: time.Duration(d.Settings.AttemptTime),
			Verify: d.Settings.Verify, Schema: d.Settings.SchemaPolicy, Lineage: d.Settings.Lineage,
			EpochBytes: int64(d.Settings.EpochSize), SplitBytes: int64(d.Settings.SplitSize),
			GiveUp: time.Duration(d.Settings.Retry.GiveUp), MinTries: d.Settings.Retry.Attempts,
		},
		Log: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if o.Resources, err = requests(ctx, o, d, sink.Spec()); err != nil {
		return nil, err
	}
	state, err := sqlite.Open(p.t.Context(), p.state)
	if err != nil {
		return nil, err
	}
	defer func() { require.NoError(p.t, state.Close()) }()
	o.State = state
	for _, c := range changes {
		c(&o)
	}
	return runner.Run(ctx, o)
}

// requests expands the document against its source.
func requests(ctx context.Context, o runner.Options, d *pipeline.Document, sink engine.Spec) ([]runner.ResourceRequest, error) {
	src, err := o.OpenSource(ctx, engine.OpenOptions{})
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	defer func() { _ = src.Close(context.WithoutCancel(ctx)) }()
	found, err := src.Discover(ctx, d.Patterns())
	if err != nil {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	selected, err := d.Expand(found)
	if err != nil {
		// As the command does: near names are among all resources.
		if found, err = src.Discover(ctx, nil); err != nil {
			return nil, fmt.Errorf("discover resources: %w", err)
		}
		if selected, err = d.Expand(found); err != nil {
			return nil, err
		}
	}
	var out []runner.ResourceRequest
	for _, s := range selected {
		read, write := d.Modes(s.Entry, &sink)
		q := runner.ResourceRequest{
			Selection: engine.Selection{Resource: s.Resource.Name, Where: s.Entry.Where, Key: s.Entry.Key, Cursor: s.Entry.Cursor, Lookback: time.Duration(s.Entry.Lookback), Initial: s.Entry.Initial},
			Read:      read, Write: write, Target: s.Entry.Target, Policies: d.EnginePolicies(s.Entry), Consistency: d.Settings.Consistency, Options: s.Entry.Options,
		}
		if c := s.Entry.Columns; c != nil {
			q.Include, q.Exclude = c.Include, c.Exclude
		}
		out = append(out, q)
	}
	return out, nil
}

func (p *place) env(name string) (string, bool) {
	switch name {
	case "SOURCE_URL":
		return p.src.url, true
	case "SINK_URL":
		return p.dst.url, true
	}
	return "", false
}

// noStaging requires that the destination holds nothing of ours but the ledger.
func (p *place) noStaging() {
	p.t.Helper()
	require.Empty(p.t, p.dst.text(`SELECT relname FROM pg_class WHERE relname LIKE '\_tranship\_%' AND relnamespace <> COALESCE(to_regnamespace('_tranship'), 0) AND relname NOT IN ('_tranship_fence', '_tranship_ledger', '_tranship_ledger_staged')
		AND relkind = 'r' AND relpersistence <> 't'`))
}

// db is a database with one session of the test's.
type db struct {
	t             *testing.T
	url, password string
	conn          *pgx.Conn
}

func newDB(t *testing.T, url string) *db {
	t.Helper()
	d := &db{t: t, url: url}
	d.conn = d.connect()
	d.password = d.conn.Config().Password
	return d
}

func (d *db) connect() *pgx.Conn {
	d.t.Helper()
	c, err := pgx.Connect(d.t.Context(), d.url)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (d *db) exec(sql string) {
	d.t.Helper()
	_, err := d.conn.Exec(d.t.Context(), sql)
	require.NoError(d.t, err)
}

// text returns the rows of a query, each in PostgreSQL's text form of a row.
func (d *db) text(sql string) []string {
	d.t.Helper()
	rows, err := d.conn.Query(d.t.Context(), "SELECT r::text FROM ("+sql+") r")
	require.NoError(d.t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(d.t, err)
	return out
}

func (d *db) count(sql string) int64 {
	d.t.Helper()
	var n int64
	require.NoError(d.t, d.conn.QueryRow(d.t.Context(), sql).Scan(&n))
	return n
}

// buffer collects what is said.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
