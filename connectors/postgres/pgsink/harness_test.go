package pgsink

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
	"github.com/tranship-io/tranship/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bench is one test's databases and its sink session.
type bench struct {
	testing.TB
	ctx      context.Context
	from, to string
	src, dst *pgx.Conn
	route    engine.Route
	ordinal  int64
	options  map[string]any
}

func newBench(t *testing.T) *bench {
	t.Helper()
	server := pgtest.Shared(t)
	return benchOn(t, pgtest.NewDatabase(t, server), pgtest.NewDatabase(t, server))
}

func benchOn(t *testing.T, from, to string) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	b := &bench{TB: t, ctx: ctx, from: from, to: to, options: map[string]any{},
		route: engine.Route{Installation: uuid.NewString(), Pipeline: "p", Source: "src", Sink: "dst"}}
	b.src, b.dst = b.connect(from), b.connect(to)
	return b
}

func (b *bench) connect(url string) *pgx.Conn {
	b.Helper()
	conn, err := pgconf.Connect(b.ctx, &pgconf.Config{URL: url}, engine.OpenOptions{}, pgconf.Role{Name: "test"})
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (b *bench) exec(c *pgx.Conn, sql ...string) {
	b.Helper()
	for _, q := range sql {
		_, err := c.Exec(b.ctx, q)
		require.NoError(b, err, q)
	}
}

// text returns the rows of a query, their columns joined by commas.
func (b *bench) text(c *pgx.Conn, sql string) []string {
	b.Helper()
	rows, err := c.Query(b.ctx, "SELECT (r.*)::text FROM ("+sql+") r")
	require.NoError(b, err, sql)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b, err, sql)
	return got
}

func (b *bench) count(c *pgx.Conn, sql string) int64 {
	b.Helper()
	var n int64
	require.NoError(b, c.QueryRow(b.ctx, sql).Scan(&n), sql)
	return n
}

func (b *bench) open(url string) *Session {
	b.Helper()
	cfg := map[string]any{"url": url}
	for k, v := range b.options {
		cfg[k] = v
	}
	raw, err := json.Marshal(cfg)
	require.NoError(b, err)
	s, err := New().Open(b.ctx, engine.Config(raw), engine.OpenOptions{RunID: uuid.NewString(), GiveUp: 5 * time.Second})
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	return s.(*Session)
}

// discover describes a table of the source as the source connector does.
func (b *bench) discover(name string) engine.Resource {
	b.Helper()
	path, err := parseName(name)
	require.NoError(b, err)
	var relation string
	require.NoError(b, b.src.QueryRow(b.ctx, `SELECT c.oid::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE nspname = $1 AND relname = $2`, path[0], path[1]).Scan(&relation))
	rows, err := b.src.Query(b.ctx, `SELECT a.attname::text, a.atttypid::int8, a.atttypmod, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
			a.attidentity::text, a.attgenerated <> '', COALESCE(pg_get_expr(d.adbin, d.adrelid), ''), COALESCE(col_description(a.attrelid, a.attnum), '')
		FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, relation)
	require.NoError(b, err)
	var fields []schema.Field
	var refs []typeRef
	for rows.Next() {
		var f schema.Field
		var ref typeRef
		var identity string
		require.NoError(b, rows.Scan(&f.Name, &ref.OID, &ref.Typmod, &ref.Name, &f.Nullable, &identity, &f.Generated, &f.Default, &f.Comment))
		f.Identity = map[string]string{"a": "always", "d": "by default"}[identity]
		fields, refs = append(fields, f), append(refs, ref)
	}
	require.NoError(b, rows.Err())
	types := &typeReader{&Session{major: pgconf.ServerVersion(b.src) / 10000}, &conn{Conn: b.src}}
	infos, err := types.byOID(b.ctx, refs)
	require.NoError(b, err)
	for i, info := range infos {
		fields[i].Type, fields[i].Native = info.Logical(), info.Native()
	}
	rows, err = b.src.Query(b.ctx, `SELECT a.attname::text FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY k(n, o)
		JOIN pg_attribute a ON a.attnum = k.n WHERE i.indrelid = $1::oid AND i.indisprimary AND a.attrelid = i.indrelid ORDER BY o`, relation)
	require.NoError(b, err)
	key, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b, err)
	return engine.Resource{Name: name, Path: path, Kind: "table", Schema: schema.Schema{Fields: fields, Key: key}}
}

// job is what a test asks of the sink.
type job struct {
	resource    engine.Resource
	read        engine.ReadMode
	write       engine.WriteMode
	consistency engine.Consistency
	arrow       bool
	verify      engine.Verify
	policies    engine.Policies
	freeze      bool
	lineage     bool
	target      string
	options     string
	others      []string
	window      *engine.Window
	generation  int
	splits      []string
	run         string
	cursor      string
}

func (b *bench) request(j job) engine.TargetRequest {
	if j.read == "" {
		j.read = engine.ReadFull
	}
	if j.consistency == "" {
		j.consistency = engine.ConsistencyChunked
	}
	if j.verify == "" {
		j.verify = engine.VerifyDigest
	}
	if j.run == "" {
		j.run = uuid.NewString()
	}
	if len(j.splits) == 0 {
		j.splits = []string{j.resource.Name + "/0"}
	}
	plan := &engine.SourcePlan{Resource: j.resource, Consistency: j.consistency, Window: j.window, Rows: -1, Bytes: -1}
	for _, id := range j.splits {
		plan.Splits = append(plan.Splits, engine.Split{ID: id, Resource: j.resource.Name, Descriptor: json.RawMessage(`{"n":1}`)})
	}
	if !j.arrow {
		plan.Wire = []engine.WireFormat{engine.WirePostgresCopy}
	}
	policy := engine.SchemaEvolve
	if j.freeze {
		policy = engine.SchemaFreeze
	}
	b.ordinal++
	req := engine.TargetRequest{Route: b.route, RunID: j.run, Ordinal: b.ordinal, Generation: j.generation, Plan: plan, Read: j.read, Write: j.write,
		Target: j.target, Verify: j.verify, Policies: j.policies, Schema: policy, Lineage: j.lineage, Others: j.others}
	if j.options != "" {
		req.Options = json.RawMessage(j.options)
	}
	return req
}

// planned is a target with its frozen plan.
type planned struct {
	*engine.Target
	plan   *engine.ResourcePlan
	cursor string
}

func (b *bench) plan(s *Session, j job) (*planned, error) {
	req := b.request(j)
	t, err := s.Plan(b.ctx, req)
	if err != nil {
		return nil, err
	}
	// A target goes through State as JSON.
	raw, err := json.Marshal(t)
	require.NoError(b, err)
	again := new(engine.Target)
	require.NoError(b, json.Unmarshal(raw, again))
	return &planned{again, &engine.ResourcePlan{Read: t.Read, Write: t.Write, Source: req.Plan, Target: again, Generation: j.generation}, j.cursor}, nil
}

// start plans, prepares, begins and freezes.
func (b *bench) start(s *Session, j job) *planned {
	b.Helper()
	p, err := b.plan(s, j)
	require.NoError(b, err)
	require.NoError(b, b.begin(s, p))
	return p
}

func (b *bench) begin(s *Session, p *planned) error {
	if _, err := s.Prepare(b.ctx, p.Target); err != nil {
		return err
	}
	if err := s.BeginRun(b.ctx, []*engine.Target{p.Target}); err != nil {
		return err
	}
	return s.Freeze(b.ctx, p.Target, p.plan)
}

// rows makes batches of the rows of a query over the source's table, as the
// source does: tuples, digest, checksum.
func (b *bench) rows(p *planned, rest string, perBatch int) []*engine.Batch {
	b.Helper()
	fields := p.Schema.Fields
	path := p.plan.Source.Resource.Path
	exprs := make([]string, len(fields))
	asText := make([]bool, len(fields))
	for i, f := range fields {
		exprs[i] = ident(f.Name)
		asText[i] = p.Columns[i].AsText
		if asText[i] || p.Wire == "" && f.Type.Kind == schema.Unknown {
			exprs[i] += "::text"
		}
	}
	var raw bytes.Buffer
	_, err := b.src.PgConn().CopyTo(b.ctx, &raw, "COPY (SELECT "+strings.Join(exprs, ", ")+" FROM "+qualified(path[0], path[1])+" "+rest+") TO STDOUT (FORMAT binary)")
	require.NoError(b, err)
	var tuples [][]byte
	require.NoError(b, pgcopy.NewScanner(len(fields)).Scan(raw.Bytes(), func(tuple []byte) error {
		tuples = append(tuples, bytes.Clone(tuple))
		return nil
	}))
	var batches []*engine.Batch
	for part := range slices.Chunk(tuples, perBatch) {
		if p.Wire != "" {
			batches = append(batches, b.wireBatch(p, part, asText))
		} else {
			batches = append(batches, b.recordBatch(p, part))
		}
	}
	return batches
}

func (b *bench) wireBatch(p *planned, tuples [][]byte, asText []bool) *engine.Batch {
	d, err := pgcopy.NewDigester(p.Schema.Fields, asText)
	require.NoError(b, err)
	batch := &engine.Batch{Resource: p.Resource, Rows: len(tuples), Wire: slices.Concat(tuples...)}
	for _, t := range tuples {
		require.NoError(b, d.Tuple(t))
	}
	batch.Digest, _ = d.Take()
	batch.Bytes, batch.CRC = int64(len(batch.Wire)), integrity.CRC(0, batch.Wire)
	return batch
}

func (b *bench) recordBatch(p *planned, tuples [][]byte) *engine.Batch {
	d, err := pgcopy.NewDecoder(memory.DefaultAllocator, p.Schema.Fields)
	require.NoError(b, err)
	defer d.Release()
	for _, t := range tuples {
		require.NoError(b, d.Append(t))
	}
	return b.batch(p, d.Take())
}

func (b *bench) batch(p *planned, rec arrow.RecordBatch) *engine.Batch {
	digest, err := integrity.RecordDigest(&p.Schema, rec)
	require.NoError(b, err)
	return &engine.Batch{Resource: p.Resource, Rows: int(rec.NumRows()), Bytes: 1, Record: rec, Digest: digest, CRC: integrity.RecordCRC(rec)}
}

// epoch makes an epoch of batches.
func epoch(p *planned, split string, claim, number int64, done bool, batches []*engine.Batch) *engine.Epoch {
	end := engine.EpochEnd{Done: done, Position: json.RawMessage(fmt.Sprintf(`{"at":%d}`, number))}
	i := 0
	return &engine.Epoch{Targets: map[string]*engine.Target{p.Resource: p.Target}, Split: split, Claim: claim, Number: number,
		Next: func(ctx context.Context) (*engine.Batch, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if i == len(batches) {
				return nil, io.EOF
			}
			b := batches[i]
			i++
			end.Rows += int64(b.Rows)
			end.Bytes += b.Bytes
			end.Digest.Add(b.Digest)
			var be [4]byte
			binary.BigEndian.PutUint32(be[:], b.CRC)
			end.CRC = integrity.CRC(end.CRC, be[:])
			return b, nil
		},
		End: func() engine.EpochEnd { return end },
	}
}

// apply claims a split and applies the batches as its one epoch.
func (b *bench) apply(s *Session, p *planned, batches []*engine.Batch) (*engine.Receipt, error) {
	b.Helper()
	split := p.plan.Source.Splits[0].ID
	if _, err := s.Claim(b.ctx, p.Target, split, 1); err != nil {
		return nil, err
	}
	e := epoch(p, split, 1, 1, true, batches)
	r, err := s.Apply(b.ctx, e)
	if err == nil {
		require.Equal(b, e.End().CRC, r.CRC)
		require.Equal(b, e.End().Rows, r.Applied+r.Superseded+r.Skipped+r.SetAside, "P6")
		if p.Verify == engine.VerifyDigest {
			require.True(b, r.Verified)
			require.Equal(b, e.End().Digest, r.ReadBack)
		}
	}
	return r, err
}

func (b *bench) publication(p *planned, claim int64) *engine.Publication {
	pub := &engine.Publication{Target: p.Target, Split: engine.PublishSplit(p.Resource), Claim: claim, Cursor: json.RawMessage(p.cursor)}
	for _, s := range p.plan.Source.Splits {
		pub.Splits = append(pub.Splits, s.ID)
	}
	return pub
}

func (b *bench) publish(s *Session, p *planned, r *engine.Receipt) (*engine.Receipt, error) {
	pub := b.publication(p, 1)
	pub.Totals = engine.Totals{Applied: r.Applied}
	return s.Publish(b.ctx, pub)
}

// replicate runs a job from plan to publish.
func (b *bench) replicate(s *Session, j job, rest string) (*planned, *engine.Receipt) {
	b.Helper()
	p := b.start(s, j)
	r, err := b.apply(s, p, b.rows(p, rest, 100))
	require.NoError(b, err)
	_, err = b.publish(s, p, r)
	require.NoError(b, err)
	require.Zero(b, b.count(b.dst, `SELECT count(*) FROM pg_class WHERE relname LIKE '\_tranship\_%' AND relkind = 'r'
		AND relnamespace <> (SELECT oid FROM pg_namespace WHERE nspname = '_tranship') AND relname NOT IN ('_tranship_fence', '_tranship_ledger', '_tranship_ledger_staged')
		AND relpersistence <> 't'`), "nothing is left behind")
	return p, r
}

func itoa(n int) string { return fmt.Sprint(n) }
