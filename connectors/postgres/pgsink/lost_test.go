package pgsink

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// staged lists the staging tables of the destination.
func (b *bench) staged() []string {
	return b.text(b.dst, `SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^_tranship_[0-9a-f]{12}_' ORDER BY 1`)
}

// TestPublishedLedgerOutlivesACrash: unlogged ledger rows become logged with the
// publish, so that they prove the totals ever after (P7).
func TestPublishedLedgerOutlivesACrash(t *testing.T) {
	t.Parallel()
	server := pgtest.StartT(t, pgtest.Config{})
	b := benchOn(t, pgtest.NewDatabase(t, pgtest.Shared(t)), pgtest.NewDatabase(t, server))
	res := simple(b, 100)
	b.options["staging"] = StagingUnlogged
	s, late := b.open(b.to), b.open(b.to)
	p := b.start(s, job{resource: res, write: engine.WriteReplace})
	split := p.plan.Source.Splits[0].ID
	r, err := b.apply(s, p, b.rows(p, "", 10))
	require.NoError(t, err)
	_, err = b.publish(s, p, r)
	require.NoError(t, err)
	require.Zero(t, b.count(b.dst, "SELECT count(*) FROM _tranship.ledger_staged"))

	// An epoch that comes again after the publish is told that it is late.
	for _, session := range []*Session{s, late} {
		_, err = session.Apply(b.ctx, epoch(p, split, 1, 1, true, b.rows(p, "", 10)))
		requireStale(t, err, "claim")
	}

	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(b.ctx))
	again := b.open(b.to)
	require.NoError(t, b.begin(again, p))
	entry, err := again.Claim(b.ctx, p.Target, split, 2)
	require.NoError(t, err)
	require.True(t, entry.Done)
	require.EqualValues(t, 100, entry.Totals.Applied)
	require.Equal(t, r.ReadBack, entry.Totals.Digest)
	found, err := again.Adopt(b.ctx, b.route)
	require.NoError(t, err)
	require.Len(t, found[0].Resources[0].Ledger, 2)
	done, err := again.Publish(b.ctx, b.publication(p, 3))
	require.NoError(t, err)
	require.True(t, done.AlreadyDone)
	require.EqualValues(t, 100, done.Published.Applied)
	b.dst = b.connect(b.to)
	require.EqualValues(t, 100, b.count(b.dst, "SELECT count(*) FROM t"))
	require.Empty(t, b.staged())
}

// TestStagingOfEveryGenerationGoes: a late Prepare of an earlier generation makes
// staging that nobody loads; the publish drops it.
func TestStagingOfEveryGenerationGoes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 10)
	s := b.open(b.to)
	j := job{resource: res, write: engine.WriteReplace, run: uuid.NewString(), splits: []string{"a"}}
	old := b.start(s, j)
	j.generation = 1
	b.ordinal--
	p := b.start(s, j)
	require.Len(t, b.staged(), 1)
	_, err := s.Prepare(b.ctx, old.Target)
	require.NoError(t, err)
	require.Len(t, b.staged(), 2)
	r, err := b.apply(s, p, b.rows(p, "", 10))
	require.NoError(t, err)
	requireStale(t, s.Freeze(b.ctx, old.Target, old.plan), "generation")
	_, err = s.Claim(b.ctx, old.Target, "a", 9)
	requireStale(t, err, "generation")
	_, err = b.publish(s, p, r)
	require.NoError(t, err)
	require.Empty(t, b.staged())

	// P8: neither generation's redelivery makes an empty staging.
	for _, target := range []*planned{old, p} {
		_, err = s.Prepare(b.ctx, target.Target)
		require.NoError(t, err)
		require.NoError(t, s.Freeze(b.ctx, target.Target, target.plan))
	}
	require.Empty(t, b.staged())
	// What a crash between the publish and its tidying left goes with a repeated one.
	b.exec(b.dst, "CREATE TABLE "+qualified("public", stagingName(old.Target, "t"))+" (id int)")
	_, err = s.Publish(b.ctx, b.publication(p, 2))
	require.NoError(t, err)
	require.Empty(t, b.staged())
}

// TestStagingOfRunsThatNeverBeganGoes: they prepared and died; the next run of
// the route, or of whoever replaces the same table, cleans up after them.
func TestStagingOfRunsThatNeverBeganGoes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 10)
	b.exec(b.src, "CREATE TABLE u (id int PRIMARY KEY)")
	s := b.open(b.to)
	prepare := func(j job) *planned {
		p, err := b.plan(s, j)
		require.NoError(t, err)
		_, err = s.Prepare(b.ctx, p.Target)
		require.NoError(t, err)
		return p
	}
	own := b.route
	prepare(job{resource: res, write: engine.WriteReplace})
	b.route.Installation = "lost with its state file"
	prepare(job{resource: res, write: engine.WriteReplace})
	// Another route that is alive keeps what it has, and so does another table's.
	b.route.Installation = "alive"
	alive := b.start(s, job{resource: res, write: engine.WriteReplace})
	b.route.Installation = "another table's"
	other := prepare(job{resource: b.discover("public.u"), write: engine.WriteReplace})
	b.route = own
	p := b.start(s, job{resource: res, write: engine.WriteReplace})
	var want []string
	for _, x := range []*planned{alive, other, p} {
		want = append(want, "("+stagingName(x.Target, x.plan.Source.Resource.Path[1])+")")
	}
	require.ElementsMatch(t, want, b.staged())
}

// TestACursorIsComparedByValue: what State hands back has other spaces.
func TestACursorIsComparedByValue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 10)
	s := b.open(b.to)
	one := b.start(s, job{resource: res, write: engine.WriteUpsert, cursor: `{"at": "<5>", "n": 12345678901234567890}`})
	r, err := b.apply(s, one, b.rows(one, "WHERE id <= 5", 10))
	require.NoError(t, err)
	_, err = b.publish(s, one, r)
	require.NoError(t, err)
	two, err := b.plan(s, job{resource: res, write: engine.WriteUpsert})
	require.NoError(t, err)
	two.plan.Read = engine.ReadIncremental
	two.plan.From = json.RawMessage(`{"at":"\u003c5\u003e","n":12345678901234567891}`)
	err = b.begin(s, two)
	require.ErrorIs(t, err, engine.ErrPlanVoid)
	require.ErrorContains(t, err, "12345678901234567890")
	two.plan.From = json.RawMessage(`{"at":"\u003c5\u003e","n":12345678901234567890}`)
	require.NoError(t, s.Freeze(b.ctx, two.Target, two.plan))
	// The destination is set back to before the first run.
	b.exec(b.dst, "UPDATE _tranship.fence SET cursor = NULL")
	require.ErrorIs(t, s.Freeze(b.ctx, two.Target, two.plan), engine.ErrPlanVoid)
}

// TestALostRunIsToldSo: staging that a later run dropped is not lost staging.
func TestALostRunIsToldSo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 10)
	s := b.open(b.to)
	old := b.start(s, job{resource: res, write: engine.WriteReplace})
	split := old.plan.Source.Splits[0].ID
	_, err := s.Claim(b.ctx, old.Target, split, 1)
	require.NoError(t, err)
	b.start(s, job{resource: res, write: engine.WriteReplace})
	_, err = s.Apply(b.ctx, epoch(old, split, 1, 1, true, b.rows(old, "", 10)))
	requireStale(t, err, "ordinal")
	_, err = s.Publish(b.ctx, b.publication(old, 1))
	requireStale(t, err, "ordinal")
}
