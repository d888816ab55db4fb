package pgsink

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/pgtest"
)

func simple(b *bench, rows int) engine.Resource {
	b.exec(b.src, `CREATE TABLE t (id int PRIMARY KEY, s text)`, `INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, `+itoa(rows)+`) g`)
	return b.discover("public.t")
}

func requireStale(t *testing.T, err error, what string) {
	t.Helper()
	var stale *engine.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, what, stale.What)
}

func TestStaleClaimLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 100)
	zombie, heir := b.open(b.to), b.open(b.to)
	p := b.start(zombie, job{resource: res, write: engine.WriteAppend})
	split := p.plan.Source.Splits[0].ID
	_, err := zombie.Claim(b.ctx, p.Target, split, 1)
	require.NoError(t, err)
	first := b.rows(p, "WHERE id <= 50", 10)
	_, err = zombie.Apply(b.ctx, epoch(p, split, 1, 1, false, first))
	require.NoError(t, err)

	entry, err := heir.Claim(b.ctx, p.Target, split, 2)
	require.NoError(t, err)
	require.EqualValues(t, 1, entry.Epoch)
	require.JSONEq(t, `{"at":1}`, string(entry.Position))
	require.EqualValues(t, 50, entry.Totals.Applied)
	require.Equal(t, first[0].Digest, b.rows(p, "WHERE id <= 10", 10)[0].Digest)

	rest := b.rows(p, "WHERE id > 50", 10)
	// P5: the older claim's session was ended; from a new one it is told why.
	_, err = zombie.Apply(b.ctx, epoch(p, split, 1, 2, true, rest))
	require.Error(t, err)
	_, err = zombie.Apply(b.ctx, epoch(p, split, 1, 2, true, rest))
	requireStale(t, err, "claim")
	_, err = heir.Apply(b.ctx, epoch(p, split, 2, 1, true, rest))
	requireStale(t, err, "claim")
	require.EqualValues(t, 50, b.count(b.dst, "SELECT count(*) FROM t"))
	_, err = heir.Apply(b.ctx, epoch(p, split, 2, 2, true, rest))
	require.NoError(t, err)
	_, err = heir.Apply(b.ctx, epoch(p, split, 2, 3, true, rest))
	requireStale(t, err, "claim")
	require.EqualValues(t, 100, b.count(b.dst, "SELECT count(*) FROM t"))

	// The same claim by another owner is refused, by the same one it is repeated.
	_, err = zombie.Claim(b.ctx, p.Target, split, 2)
	requireStale(t, err, "claim")
	entry, err = heir.Claim(b.ctx, p.Target, split, 2)
	require.NoError(t, err)
	require.True(t, entry.Done)
}

func TestClaimInTheMiddleOfAnEpoch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 100)
	zombie, heir := b.open(b.to), b.open(b.to)
	p := b.start(zombie, job{resource: res, write: engine.WriteAppend, verify: engine.VerifyCounts})
	split := p.plan.Source.Splits[0].ID
	_, err := zombie.Claim(b.ctx, p.Target, split, 1)
	require.NoError(t, err)
	e := epoch(p, split, 1, 1, true, b.rows(p, "", 10))
	inside, next := make(chan struct{}), e.Next
	n := 0
	e.Next = func(ctx context.Context) (*engine.Batch, error) {
		// P5: a client that is frozen inside COPY holds its locks until it is ended.
		if n++; n == 3 {
			close(inside)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return next(ctx)
	}
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	go func() {
		_, err := zombie.Apply(ctx, e)
		failed <- err
	}()
	<-inside
	began := time.Now()
	_, err = heir.Claim(b.ctx, p.Target, split, 2)
	require.NoError(t, err)
	require.Less(t, time.Since(began), 5*time.Second)
	require.Error(t, <-failed)
	require.Zero(t, b.count(b.dst, `SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND pid <> pg_backend_pid()`), "the older claim's session is gone with its locks")
	_, err = heir.Apply(b.ctx, epoch(p, split, 2, 1, true, b.rows(p, "", 10)))
	require.NoError(t, err)
	require.EqualValues(t, 100, b.count(b.dst, "SELECT count(*) FROM t"))
}

func TestNewRunFencesTheOld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 100)
	zombie, heir := b.open(b.to), b.open(b.to)
	old := b.start(zombie, job{resource: res, write: engine.WriteReplace})
	split := old.plan.Source.Splits[0].ID
	_, err := zombie.Claim(b.ctx, old.Target, split, 1)
	require.NoError(t, err)
	// The old run's session is inside an epoch and holds on to its staging.
	e := epoch(old, split, 1, 1, true, b.rows(old, "", 10))
	inside, next := make(chan struct{}), e.Next
	var once sync.Once
	e.Next = func(ctx context.Context) (*engine.Batch, error) {
		got, err := next(ctx)
		if errors.Is(err, io.EOF) {
			once.Do(func() { close(inside) })
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return got, err
	}
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	go func() {
		_, err := zombie.Apply(ctx, e)
		failed <- err
	}()
	<-inside
	b.replicate(heir, job{resource: res, write: engine.WriteReplace}, "")
	require.Error(t, <-failed)
	require.EqualValues(t, 100, b.count(b.dst, "SELECT count(*) FROM t"))

	_, err = zombie.Claim(b.ctx, old.Target, split, 5)
	requireStale(t, err, "ordinal")
	_, err = zombie.Apply(b.ctx, epoch(old, split, 1, 1, true, b.rows(old, "", 10)))
	require.Error(t, err)
	require.Error(t, zombie.BeginRun(b.ctx, []*engine.Target{old.Target}))
	requireStale(t, zombie.BeginRun(b.ctx, []*engine.Target{old.Target}), "ordinal")
	_, err = zombie.Prepare(b.ctx, old.Target)
	requireStale(t, err, "ordinal")
	_, err = zombie.Publish(b.ctx, b.publication(old, 1))
	require.Error(t, err)
	require.EqualValues(t, 100, b.count(b.dst, "SELECT count(*) FROM t"))
	require.Zero(t, b.count(b.dst, `SELECT count(*) FROM pg_class WHERE relname LIKE '\_tranship\_%' AND relnamespace = 'public'::regnamespace`))
}

func TestEpochThatPassedItsFenceWinsOverARunStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 10)
	one, two := b.open(b.to), b.open(b.to)
	old := b.start(one, job{resource: res, write: engine.WriteAppend})
	// A session of our own that holds what an epoch holds after its check.
	holder := b.connect(b.to)
	k := keyOf(old.Target)
	b.exec(holder, "BEGIN", "SELECT pg_advisory_xact_lock_shared("+itoa(int(k.lock()))+")")
	next, err := b.plan(two, job{resource: res, write: engine.WriteAppend})
	require.NoError(t, err)
	_, err = two.Prepare(b.ctx, next.Target)
	require.NoError(t, err)
	begun := make(chan error, 1)
	go func() { begun <- two.BeginRun(b.ctx, []*engine.Target{next.Target}) }()
	select {
	case err := <-begun:
		t.Fatalf("the run began while an epoch could still commit: %v", err)
	case <-time.After(1500 * time.Millisecond):
	}
	// [P2] New epochs queue behind the run start instead of overtaking it for ever.
	b.exec(holder, "COMMIT")
	require.NoError(t, <-begun)
}

func TestFrozenGenerationReplacesTheLast(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 10)
	s := b.open(b.to)
	j := job{resource: res, write: engine.WriteReplace, run: "0190-run", splits: []string{"a"}}
	p := b.start(s, j)
	_, err := s.Claim(b.ctx, p.Target, "a", 1)
	require.NoError(t, err)
	_, err = s.Apply(b.ctx, epoch(p, "a", 1, 1, false, b.rows(p, "WHERE id < 5", 10)))
	require.NoError(t, err)
	j.generation = 1
	b.ordinal--
	again := b.start(s, j)
	_, err = s.Apply(b.ctx, epoch(p, "a", 1, 2, true, b.rows(p, "", 10)))
	require.Error(t, err, "an epoch of the earlier generation")
	entry, err := s.Claim(b.ctx, again.Target, "a", 1)
	require.NoError(t, err)
	require.Zero(t, entry.Epoch)
	r, err := s.Apply(b.ctx, epoch(again, "a", 1, 1, true, b.rows(again, "", 10)))
	require.NoError(t, err)
	_, err = b.publish(s, again, r)
	require.NoError(t, err)
	require.EqualValues(t, 10, b.count(b.dst, "SELECT count(*) FROM t"))
	require.Zero(t, b.count(b.dst, `SELECT count(*) FROM pg_class WHERE relname LIKE '\_tranship\_%' AND relnamespace = 'public'::regnamespace`))
}

func TestCrashEmptiesUnloggedStaging(t *testing.T) {
	t.Parallel()
	server := pgtest.StartT(t, pgtest.Config{})
	b := benchOn(t, pgtest.NewDatabase(t, pgtest.Shared(t)), pgtest.NewDatabase(t, server))
	res := simple(b, 100)
	b.options["staging"] = StagingUnlogged
	s := b.open(b.to)
	p := b.start(s, job{resource: res, write: engine.WriteReplace, run: "run-1"})
	_, err := b.apply(s, p, b.rows(p, "", 10))
	require.NoError(t, err)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(b.ctx))
	again := b.open(b.to)
	_, err = again.Prepare(b.ctx, p.Target)
	require.ErrorIs(t, err, engine.ErrStagingLost)
	_, err = again.Claim(b.ctx, p.Target, p.plan.Source.Splits[0].ID, 2)
	require.ErrorIs(t, err, engine.ErrStagingLost)
	_, err = again.Publish(b.ctx, b.publication(p, 1))
	require.ErrorIs(t, err, engine.ErrStagingLost)
	require.ErrorIs(t, again.Freeze(b.ctx, p.Target, p.plan), engine.ErrStagingLost)

	b.ordinal--
	b.dst = b.connect(b.to)
	b.replicate(again, job{resource: res, write: engine.WriteReplace, run: "run-1", generation: 1}, "")
	require.EqualValues(t, 100, b.count(b.dst, "SELECT count(*) FROM t"))

	// Logged staging outlives a crash.
	b.options["staging"] = StagingLogged
	logged := b.open(b.to)
	p = b.start(logged, job{resource: res, write: engine.WriteReplace})
	r, err := b.apply(logged, p, b.rows(p, "", 10))
	require.NoError(t, err)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(b.ctx))
	third := b.open(b.to)
	require.NoError(t, b.begin(third, p))
	_, err = b.publish(third, p, r)
	require.NoError(t, err)
	b.dst = b.connect(b.to)
	require.EqualValues(t, 100, b.count(b.dst, "SELECT count(*) FROM t"))
}

func TestDroppedStagingIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 100)
	s := b.open(b.to)
	p := b.start(s, job{resource: res, write: engine.WriteReplace})
	split := p.plan.Source.Splits[0].ID
	_, err := s.Claim(b.ctx, p.Target, split, 1)
	require.NoError(t, err)
	b.exec(b.dst, "DROP TABLE "+qualified("public", stagingName(p.Target, "t")))
	_, err = s.Apply(b.ctx, epoch(p, split, 1, 1, true, b.rows(p, "", 10)))
	require.ErrorIs(t, err, engine.ErrStagingLost)
	_, err = s.Prepare(b.ctx, p.Target)
	require.ErrorIs(t, err, engine.ErrStagingLost)
	_, err = s.Claim(b.ctx, p.Target, split, 2)
	require.ErrorIs(t, err, engine.ErrStagingLost)
}

func TestAdoptFindsPlanAndProgress(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 100)
	s := b.open(b.to)
	none, err := s.Adopt(b.ctx, b.route)
	require.NoError(t, err)
	require.Empty(t, none)
	p := b.start(s, job{resource: res, write: engine.WriteAppend, splits: []string{"a", "b"}})
	_, err = s.Claim(b.ctx, p.Target, "a", 3)
	require.NoError(t, err)
	_, err = s.Apply(b.ctx, epoch(p, "a", 3, 1, false, b.rows(p, "WHERE id <= 30", 10)))
	require.NoError(t, err)

	stranger := b.route
	stranger.Installation = "another"
	found, err := s.Adopt(b.ctx, stranger)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, b.route.Installation, found[0].Installation)
	require.Equal(t, p.RunID, found[0].RunID)
	r := found[0].Resources[0]
	require.False(t, r.Published)
	require.Equal(t, p.plan.Source.Splits, r.Plan.Source.Splits)
	require.Len(t, r.Ledger, 3)
	require.Equal(t, "a", r.Ledger[0].Split)
	require.EqualValues(t, 3, r.Ledger[0].Claim)
	require.EqualValues(t, 30, r.Ledger[0].Totals.Applied)
	require.JSONEq(t, `{"at":1}`, string(r.Ledger[0].Position))

	stranger.Pipeline = "other"
	found, err = s.Adopt(b.ctx, stranger)
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestAppendedRowsThatStandAreNotForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 10)
	s := b.open(b.to)
	old := b.start(s, job{resource: res, write: engine.WriteAppend})
	_, err := b.apply(s, old, b.rows(old, "", 10))
	require.NoError(t, err)
	next, err := b.plan(s, job{resource: res, write: engine.WriteAppend})
	require.NoError(t, err)
	// P21: the rows stand; only the frozen splits of their run know them.
	require.ErrorIs(t, s.BeginRun(b.ctx, []*engine.Target{next.Target}), engine.ErrUnfinished)
	requireStale(t, s.Freeze(b.ctx, next.Target, next.plan), "ordinal")
	pub := b.publication(old, 1)
	pub.Totals.Applied = 10
	_, err = s.Publish(b.ctx, pub)
	require.NoError(t, err)
	require.NoError(t, b.begin(s, next))

	// An aborted run leaves its rows, on the user's word, and its plan is gone.
	_, err = b.apply(s, next, b.rows(next, "", 10))
	require.NoError(t, err)
	require.NoError(t, s.Abort(b.ctx, next.Target))
	require.NoError(t, s.Abort(b.ctx, next.Target))
	_, err = s.Claim(b.ctx, next.Target, next.plan.Source.Splits[0].ID, 2)
	require.ErrorIs(t, err, engine.ErrLedgerBehind)
	b.start(s, job{resource: res, write: engine.WriteAppend})
	require.EqualValues(t, 20, b.count(b.dst, "SELECT count(*) FROM t"))
}

func TestLedgerThatWasSetBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 10)
	s := b.open(b.to)
	p := b.start(s, job{resource: res, write: engine.WriteUpsert})
	_, err := b.apply(s, p, b.rows(p, "", 10))
	require.NoError(t, err)
	b.exec(b.dst, "UPDATE _tranship.ledger SET done = false, epoch = 0, totals = '{}'")
	_, err = s.Publish(b.ctx, b.publication(p, 1))
	require.ErrorIs(t, err, engine.ErrLedgerBehind)
	b.exec(b.dst, "DELETE FROM _tranship.ledger")
	_, err = s.Claim(b.ctx, p.Target, p.plan.Source.Splits[0].ID, 2)
	require.ErrorIs(t, err, engine.ErrLedgerBehind)
}
