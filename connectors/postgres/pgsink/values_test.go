package pgsink

import (
	"context"
	"encoding/json"
	"net/url"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

func TestEvolve(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TABLE t (id bigint PRIMARY KEY, n numeric(12,4), v varchar(20), f float8, x text, same int, narrow int)`,
		`INSERT INTO t VALUES (1, 1.2345, 'long enough text', 0.1, 'new', 1, 2)`)
	ddl := `CREATE TABLE t (id int PRIMARY KEY, n numeric(10,2), v varchar(5), f real, same int, narrow bigint, extra int)`
	b.exec(b.dst, ddl)
	res := b.discover("public.t")
	s := b.open(b.to)
	p, _ := b.replicate(s, job{resource: res, write: engine.WriteUpsert}, "")
	require.Len(t, p.Statements, 5)
	require.Equal(t, b.text(b.src, "SELECT * FROM t"), b.text(b.dst, "SELECT id, n, v, f, x, same, narrow FROM t"))
	require.Equal(t, []string{"(bigint,\"numeric(12,4)\",\"character varying(20)\",\"double precision\",bigint)"}, b.text(b.dst, `SELECT
		(SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'id'),
		(SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'n'),
		(SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'v'),
		(SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'f'),
		(SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'narrow')`))

	b.exec(b.dst, "DROP TABLE t", ddl)
	_, err := b.plan(s, job{resource: res, write: engine.WriteUpsert, freeze: true})
	require.ErrorContains(t, err, `ALTER TABLE "public"."t" ADD COLUMN "x" text`)
	b.exec(b.dst, "ALTER TABLE t ADD x text, ALTER same TYPE text, ADD must int NOT NULL")
	_, err = b.plan(s, job{resource: res, write: engine.WriteUpsert, freeze: true})
	require.ErrorContains(t, err, `"must"`)
	b.exec(b.dst, "ALTER TABLE t DROP must")
	p, err = b.plan(s, job{resource: res, write: engine.WriteUpsert, freeze: true})
	require.NoError(t, err)
	require.Empty(t, p.Statements)
	b.exec(b.dst, "ALTER TABLE t ALTER same TYPE bool USING true")
	_, err = b.plan(s, job{resource: res, write: engine.WriteUpsert})
	require.ErrorContains(t, err, `ALTER COLUMN "same" TYPE integer USING`)
}

// narrow is a source and a target that can't hold all of it.
func narrow(b *bench) engine.Resource {
	b.exec(b.src, `CREATE TABLE t (id int PRIMARY KEY, n numeric(10,2), v varchar(10), i bigint, s timestamp, e text, q text)`,
		`INSERT INTO t VALUES (1, 1.20, 'short', 5, '2024-01-01 00:00:00.5', 'ok', 'x'), (2, 1.23, 'too long', 99999, '2024-01-01 00:00:00.123456', 'happy', 'x'), (3, NULL, NULL, NULL, NULL, NULL, NULL)`)
	b.exec(b.dst, `CREATE TYPE mood AS ENUM ('sad', 'ok')`,
		`CREATE TABLE t (id int PRIMARY KEY, n numeric(10,1), v varchar(5), i smallint, s timestamp(1), e mood, q text NOT NULL)`)
	return b.discover("public.t")
}

func TestValuesThatDoNotFitFailByName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := narrow(b)
	s := b.open(b.to)
	for _, w := range []engine.WriteMode{engine.WriteReplace, engine.WriteUpsert, engine.WriteAppend} {
		p := b.start(s, job{resource: res, write: w, freeze: true})
		_, err := b.apply(s, p, b.rows(p, "WHERE id = 2", 10))
		var value *engine.ValueError
		require.ErrorAs(t, err, &value)
		require.Equal(t, "public.t", value.Resource)
		require.Equal(t, "n", value.Column)
		require.Equal(t, "id=2", value.Key)
		require.Equal(t, "1.23", value.Value)
		require.Equal(t, engine.Permanent, engine.ClassOf(err))
		require.Zero(t, b.count(b.dst, "SELECT count(*) FROM t"))
	}
	p := b.start(s, job{resource: res, write: engine.WriteUpsert, freeze: true})
	_, err := b.apply(s, p, b.rows(p, "WHERE id = 3", 10))
	require.ErrorContains(t, err, `column "q" row id=3: value NULL does not fit`)
}

func TestValuePolicies(t *testing.T) {
	t.Parallel()
	for name, arrow := range map[string]bool{"wire": false, "arrow": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			res := narrow(b)
			s := b.open(b.to)
			j := job{resource: res, write: engine.WriteReplace, freeze: true, arrow: arrow, policies: engine.Policies{
				Columns:  map[string]engine.Policy{"n": engine.PolicyClamp, "v": engine.PolicyClamp, "i": engine.PolicyClamp, "s": engine.PolicyNull, "e": engine.PolicyNull, "q": engine.PolicySetAside},
				SetAside: "table:public.aside"}}
			_, r := b.replicate(s, j, "")
			require.EqualValues(t, 2, r.Applied)
			require.EqualValues(t, 1, r.SetAside)
			require.Equal(t, []string{"(1,1.2,short,5,\"2024-01-01 00:00:00.5\",ok,x)", "(2,1.2,\"too l\",32767,,,x)"}, b.text(b.dst, "SELECT * FROM t ORDER BY id"))
			counted := map[string]int64{}
			for _, c := range r.Policies {
				counted[c.Column+" "+string(c.Policy)] = c.Count
			}
			require.Equal(t, map[string]int64{"n clamp": 1, "v clamp": 1, "i clamp": 1, "s null": 1, "e null": 1, "q set_aside": 1}, counted)
			require.Equal(t, []string{"(q,id=3,3)"}, b.text(b.dst, `SELECT "column", key, "values"->>'id' FROM aside`))

			j.policies.SetAside = "file:x.jsonl"
			_, r = b.replicate(s, j, "")
			require.Len(t, r.SetAsideRows, 1)
			require.Equal(t, "id=3", r.SetAsideRows[0].Key)
			require.True(t, json.Valid(r.SetAsideRows[0].Values))
			j.policies.SetAside = ""
			_, err := b.plan(s, j)
			require.ErrorContains(t, err, "no place")
		})
	}
}

// lines are the rows of a source that is not PostgreSQL (case 35).
func lines() (schema.Schema, arrow.RecordBatch) {
	s := schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
		{Name: "id", Type: schema.Type{Kind: schema.Int64}}, {Name: "s", Type: schema.Type{Kind: schema.String}, Nullable: true},
		{Name: "u", Type: schema.Type{Kind: schema.Uint64}, Nullable: true}, {Name: "d", Type: schema.Type{Kind: schema.Decimal, Precision: 20, Scale: 4}, Nullable: true},
		{Name: "j", Type: schema.Type{Kind: schema.JSONB}, Nullable: true}}}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer rb.Release()
	for id := range int64(1000) {
		rb.Field(0).(*array.Int64Builder).Append(id)
		text, doc := "plain", `{"k": 1}`
		switch id {
		case 500:
			text, doc = "a\x00b", `{"k":"x"}`
		case 501:
			text, doc = `a\u0000b`, `{"k":"\\u0000"}`
		}
		rb.Field(1).(*array.StringBuilder).Append(text)
		rb.Field(2).(*array.Uint64Builder).Append(18446744073709551615)
		rb.Field(3).(*array.Decimal128Builder).Append(decimal128.FromI64(id * 10001))
		rb.Field(4).(*array.StringBuilder).Append(doc)
	}
	return s, rb.NewRecordBatch()
}

func TestNULInText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy engine.Policy
		rows   int64
		value  string
	}{"fail": {engine.PolicyFail, 0, ""}, "null": {engine.PolicyNull, 1000, "()"}, "clamp": {engine.PolicyClamp, 1000, "(ab)"}, "set aside": {engine.PolicySetAside, 999, ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sch, rec := lines()
			s := b.open(b.to)
			j := job{arrow: true, write: engine.WriteReplace, resource: engine.Resource{Name: "lines", Path: []string{"lines"}, Schema: sch},
				policies: engine.Policies{Default: c.policy, SetAside: "table:public.aside"}}
			p := b.start(s, j)
			r, err := b.apply(s, p, []*engine.Batch{b.batch(p, rec)})
			if c.policy == engine.PolicyFail {
				var value *engine.ValueError
				require.ErrorAs(t, err, &value)
				require.Equal(t, "s", value.Column)
				require.Equal(t, "id=500", value.Key)
				require.Equal(t, engine.Permanent, engine.ClassOf(err))
				return
			}
			require.NoError(t, err)
			_, err = b.publish(s, p, r)
			require.NoError(t, err)
			require.Len(t, r.Policies, 1)
			require.EqualValues(t, 1, r.Policies[0].Count)
			require.Equal(t, c.rows, b.count(b.dst, "SELECT count(*) FROM lines"))
			require.EqualValues(t, 1, b.count(b.dst, `SELECT count(*) FROM lines WHERE id = 501 AND length(s) = 8 AND j->>'k' = '\u0000'`))
			require.Equal(t, c.rows, b.count(b.dst, `SELECT count(*) FROM lines WHERE u = 18446744073709551615 AND d = id * 1.0001`))
			if c.value != "" {
				require.Equal(t, []string{c.value}, b.text(b.dst, "SELECT s FROM lines WHERE id = 500"))
			} else {
				require.Equal(t, []string{"(s,id=500,lines)"}, b.text(b.dst, `SELECT "column", key, resource FROM aside`))
			}
		})
	}
}

func TestMismatchIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 10)
	s := b.open(b.to)
	for what, spoil := range map[string]func(*engine.Batch){
		"crc":    func(x *engine.Batch) { x.Wire[len(x.Wire)-1] ^= 1 },
		"digest": func(x *engine.Batch) { x.Digest.Lo++ },
	} {
		for _, w := range []engine.WriteMode{engine.WriteReplace, engine.WriteAppend, engine.WriteUpsert} {
			p := b.start(s, job{resource: res, write: w, target: "public." + string(w)})
			batches := b.rows(p, "", 3)
			spoil(batches[1])
			_, err := b.apply(s, p, batches)
			var mismatch *engine.MismatchError
			require.ErrorAs(t, err, &mismatch, "%s %s", what, w)
			require.Equal(t, what, mismatch.What)
			require.Equal(t, "public.t", mismatch.Resource)
			require.Equal(t, p.plan.Source.Splits[0].ID, mismatch.Split)
		}
	}
}

func TestTypesThatTheDestinationLacks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE SCHEMA shop`, `CREATE TYPE shop.mood AS ENUM ('sad', 'o''k')`, `CREATE DOMAIN shop.positive AS int CHECK (VALUE > 0)`,
		`CREATE TYPE shop.pair AS (a int, b text)`, `CREATE TABLE shop.t (id int PRIMARY KEY, m shop.mood, ms shop.mood[], p shop.positive, c shop.pair, mo money)`,
		`INSERT INTO shop.t VALUES (1, 'o''k', '{sad,NULL}', 5, '(1,"x y")', 1234.5), (2, NULL, NULL, NULL, NULL, NULL)`)
	for _, arrow := range []bool{false, true} {
		res := b.discover("shop.t")
		s := b.open(b.to)
		p, _ := b.replicate(s, job{resource: res, write: engine.WriteReplace, arrow: arrow}, "")
		require.Len(t, p.Warnings, 2, p.Warnings)
		require.Equal(t, b.text(b.src, "SELECT id, m, ms, p, c::text, mo FROM shop.t ORDER BY id"), b.text(b.dst, "SELECT * FROM shop.t ORDER BY id"))
		require.Equal(t, []string{"(shop.mood,shop.mood[],integer,text,money)"}, b.text(b.dst, "SELECT pg_typeof(m), pg_typeof(ms), pg_typeof(p), pg_typeof(c), pg_typeof(mo) FROM shop.t WHERE id = 1"))
	}
	// An enum of the same name with other labels is another type.
	b.exec(b.dst, `DROP SCHEMA shop CASCADE`, `CREATE SCHEMA shop`, `CREATE TYPE shop.mood AS ENUM ('sad')`)
	p, _ := b.replicate(b.open(b.to), job{resource: b.discover("shop.t"), write: engine.WriteReplace}, "")
	require.Contains(t, p.Warnings[0], "another one")
	require.Equal(t, b.text(b.src, "SELECT m, ms FROM shop.t ORDER BY id"), b.text(b.dst, "SELECT m, ms FROM shop.t ORDER BY id"))
}

// TestWithoutTheRightToCreateSchemas: a schema that exists is enough.
func TestWithoutTheRightToCreateSchemas(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 20)
	role := "writer_" + hash(b.to)[:8]
	db := b.text(b.dst, "SELECT current_database()")[0]
	b.exec(b.dst, `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'`, `CREATE SCHEMA replica AUTHORIZATION `+role, `REVOKE CREATE ON DATABASE `+ident(db[1:len(db)-1])+` FROM PUBLIC`)
	b.Cleanup(func() { _, _ = b.dst.Exec(context.Background(), "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role) })
	u, err := url.Parse(b.to)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "secret")
	b.options["schema"] = "replica"
	for _, w := range []engine.WriteMode{engine.WriteReplace, engine.WriteReplace, engine.WriteUpsert} {
		s := b.open(u.String())
		b.replicate(s, job{resource: res, write: w}, "")
		findings, err := s.TestConnection(b.ctx)
		require.NoError(t, err)
		for _, f := range findings {
			require.Equal(t, "ok", f.Level, f)
		}
	}
	require.EqualValues(t, 20, b.count(b.dst, "SELECT count(*) FROM replica.t"))
	require.EqualValues(t, 1, b.count(b.dst, "SELECT count(*) FROM replica._tranship_fence"))
	// A ledger that exists stays where it is when the right comes later.
	b.exec(b.dst, `GRANT CREATE ON DATABASE `+ident(db[1:len(db)-1])+` TO `+role)
	require.Equal(t, "replica", b.open(u.String()).ledger.schema)

	b.options["schema"] = "nowhere"
	b.exec(b.dst, `REVOKE CREATE ON DATABASE `+ident(db[1:len(db)-1])+` FROM `+role)
	_, err = b.plan(b.open(u.String()), job{resource: res, write: engine.WriteReplace})
	require.ErrorContains(t, err, "nowhere")
	require.NotContains(t, err.Error(), "secret")
}
