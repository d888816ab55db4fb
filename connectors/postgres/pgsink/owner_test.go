package pgsink

import (
	"context"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

func TestPartitionedTarget(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TABLE t (id int, at date, s text, PRIMARY KEY (id, at))`,
		`INSERT INTO t SELECT g, date '2024-01-01' + g, 'row ' || g FROM generate_series(1, 50) g`)
	b.exec(b.dst, `CREATE TABLE t (id int, at date, s text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)`,
		`CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')`,
		`CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM ('2024-02-01') TO ('2025-01-01')`,
		`INSERT INTO t VALUES (1, '2024-01-02', 'old'), (99, '2024-06-01', 'gone')`)
	s := b.open(b.to)
	res := b.discover("public.t")
	for _, w := range []engine.WriteMode{engine.WriteReplace, engine.WriteUpsert, engine.WriteReplace, engine.WriteDelete, engine.WriteAppend} {
		b.replicate(s, job{resource: res, write: w}, "")
		if w == engine.WriteDelete {
			require.Zero(t, b.count(b.dst, "SELECT count(*) FROM t"))
			continue
		}
		require.Equal(t, b.text(b.src, "SELECT * FROM t ORDER BY id"), b.text(b.dst, "SELECT * FROM t ORDER BY id"))
	}
	// A row that no partition takes is named by the server.
	b.exec(b.src, `INSERT INTO t VALUES (1000, '2030-01-01', 'far')`)
	p := b.start(s, job{resource: res, write: engine.WriteUpsert})
	_, err := b.apply(s, p, b.rows(p, "WHERE id = 1000", 10))
	require.ErrorContains(t, err, "2030-01-01")
	require.Equal(t, engine.Permanent, engine.ClassOf(err))
}

func TestTargetOfAnotherRole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 20)
	role := "guest_" + hash(b.to)[:8]
	b.exec(b.dst, `CREATE TABLE t (id int PRIMARY KEY, s text)`, `INSERT INTO t VALUES (5, 'old'), (500, 'gone')`,
		`CREATE ROLE `+role+` LOGIN PASSWORD 'secret'`, `GRANT CREATE, USAGE ON SCHEMA public TO `+role, `GRANT SELECT, INSERT, UPDATE, DELETE ON t TO `+role)
	b.Cleanup(func() { _, _ = b.dst.Exec(context.Background(), "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role) })
	u, err := url.Parse(b.to)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "secret")
	s := b.open(u.String())
	p, _ := b.replicate(s, job{resource: res, write: engine.WriteReplace}, "")
	require.Contains(t, p.Technique, "does not own")
	require.Equal(t, b.text(b.src, "SELECT * FROM t ORDER BY id"), b.text(b.dst, "SELECT * FROM t ORDER BY id"))
	b.replicate(s, job{resource: res, write: engine.WriteUpsert}, "")

	b.exec(b.dst, `REVOKE INSERT ON t FROM `+role)
	p = b.start(s, job{resource: res, write: engine.WriteUpsert})
	_, err = b.apply(s, p, b.rows(p, "", 10))
	require.Equal(t, engine.Permanent, engine.ClassOf(err))
	require.ErrorContains(t, err, "public.t")
}
