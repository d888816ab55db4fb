package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/enginetest/memsource"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/engine/schema"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// desk replicates a table in memory by runs of a control database.
type desk struct {
	t   *testing.T
	src *memsource.DB
	dst *memsink.DB
	url string
	db  *DB
	org uuid.UUID
	// at is asked about every call of the sink.
	at func(c gate.Call) error
	o  runner.Options
}

func newDesk(t *testing.T, write engine.WriteMode) *desk {
	t.Helper()
	d := &desk{t: t, src: memsource.New(memsource.Options{SplitRows: 5, BatchRows: 2}), dst: memsink.New(memsink.Options{})}
	d.url = pgtest.NewDatabase(t, pgtest.Shared(t))
	d.open()
	require.NoError(t, d.db.Migrate(t.Context()))
	d.org = newOrganization(t, d.db, "a")
	d.src.Create("items", schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
		{Name: "id", Type: schema.Type{Kind: schema.Int64}}, {Name: "v", Type: schema.Type{Kind: schema.String}}}})
	d.grow(30)
	d.o = runner.Options{
		Pipeline: "shop", Version: "3", OneAttempt: true, Holder: "test",
		Settings:  runner.Settings{Slots: 1, EpochBytes: 1, GiveUp: 10 * time.Second, MinTries: 2, LeaseTime: time.Minute},
		Resources: []runner.ResourceRequest{{Selection: engine.Selection{Resource: "items"}, Read: engine.ReadFull, Write: write, Consistency: engine.ConsistencyChunked}},
		OpenSource: func(ctx context.Context, o engine.OpenOptions) (engine.SourceSession, error) {
			return (&memsource.Source{DB: d.src}).Open(ctx, nil, o)
		},
		OpenSink: func(ctx context.Context, o engine.OpenOptions) (engine.SinkSession, error) {
			return (&memsink.Sink{DB: d.dst, Gate: d.gate}).Open(ctx, nil, o)
		},
	}
	return d
}

func (d *desk) gate(ctx context.Context, c gate.Call, effect func() error) error {
	if d.at != nil {
		if err := d.at(c); err != nil {
			return err
		}
	}
	return gate.Open(ctx, c, effect)
}

func (d *desk) grow(n int) {
	for range n {
		tx := d.src.Begin()
		id := int64(len(d.src.Rows("items", d.src.Version())))
		tx.Put("items", id, fmt.Sprint("row ", id))
		tx.Commit()
	}
}

func (d *desk) open() {
	var err error
	d.db, err = Open(d.t.Context(), Config{URL: d.url})
	require.NoError(d.t, err)
	d.t.Cleanup(d.db.Close)
}

// copyTo copies the control database under another name; it may be a backup of
// the one in use, or the other way round.
func (d *desk) copyTo(from, to string) {
	d.t.Helper()
	d.db.Close()
	admin, err := pgx.Connect(d.t.Context(), pgtest.Shared(d.t).URL(""))
	require.NoError(d.t, err)
	defer admin.Close(d.t.Context())
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + pgx.Identifier{to}.Sanitize() + " WITH (FORCE)",
		"CREATE DATABASE " + pgx.Identifier{to}.Sanitize() + " TEMPLATE " + pgx.Identifier{from}.Sanitize()} {
		_, err = admin.Exec(d.t.Context(), sql)
		require.NoError(d.t, err)
	}
	d.open()
}

func (d *desk) name() string {
	u, err := url.Parse(d.url)
	require.NoError(d.t, err)
	return strings.TrimPrefix(u.Path, "/")
}

func (d *desk) backupName() string {
	name := d.name()
	return "b" + name[max(0, len(name)-50):]
}

func (d *desk) backup() {
	d.copyTo(d.name(), d.backupName())
	d.t.Cleanup(func() { _ = pgtest.Shared(d.t).DropDatabase(context.Background(), d.backupName()) })
}

func (d *desk) restore() { d.copyTo(d.backupName(), d.name()) }

// work lets attempts of a run follow each other until it ends.
func (d *desk) work(run uuid.UUID) (*runner.Result, error) {
	d.t.Helper()
	d.o.State = d.db.RunState(d.org, run)
	for {
		res, err := runner.Run(d.t.Context(), d.o)
		if err != nil || !res.HandedOver {
			return res, err
		}
	}
}

// has tells whether the target holds every row that many times.
func (d *desk) has(times int) {
	d.t.Helper()
	rows, _ := d.dst.Rows("items")
	count := map[string]int{}
	for _, r := range rows {
		count[string(r.Wire)]++
	}
	all := d.src.Rows("items", d.src.Version())
	require.Len(d.t, rows, times*len(all))
	for _, r := range all {
		require.Equal(d.t, times, count[string(r.Wire)], "row %d", r.Ord)
	}
}

var errDies = errors.New("the worker dies")

// dies makes the sink fail for good from its n-th applied epoch on.
func dies(n int) func(gate.Call) error {
	return func(c gate.Call) error {
		if c.Op == "sink.apply.commit" {
			if n--; n < 0 {
				return engine.Permanentf("", "%w", errDies)
			}
		}
		return nil
	}
}

// TestRestoredControlDatabase sets the control database back to a backup while
// the destination goes on, before and in the middle of runs (P1, P3).
func TestRestoredControlDatabase(t *testing.T) {
	t.Parallel()
	t.Run("to before a finished run", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, engine.WriteUpsert)
		_, err := d.work(requested(t, d.db, d.org))
		require.NoError(t, err)
		d.backup()
		d.grow(10)
		second, err := d.work(requested(t, d.db, d.org))
		require.NoError(t, err)
		require.EqualValues(t, 2, second.Run.Ordinal)
		d.restore()
		d.grow(10)
		third, err := d.work(requested(t, d.db, d.org))
		require.NoError(t, err)
		require.Equal(t, engine.StateCompleted, third.Run.State)
		require.Greater(t, third.Run.Ordinal, second.Run.Ordinal, "an ordinal is never used twice")
		d.has(1)
	})
	t.Run("to the middle of an append that ended since", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, engine.WriteAppend)
		run := requested(t, d.db, d.org)
		d.at = dies(3)
		res, err := d.work(run)
		require.ErrorIs(t, err, errDies)
		require.True(t, res.Run.Resumable)
		d.backup()
		d.at = nil
		resume(t, d.db, d.org, run)
		_, err = d.work(run)
		require.NoError(t, err)
		d.has(1)
		d.restore()
		resume(t, d.db, d.org, run)
		res, err = d.work(run)
		require.NoError(t, err)
		require.Equal(t, engine.StateCompleted, res.Run.State)
		d.has(1)
	})
	t.Run("to before an append that stands unfinished", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, engine.WriteAppend)
		d.backup()
		lost := requested(t, d.db, d.org)
		d.at = dies(3)
		_, err := d.work(lost)
		require.ErrorIs(t, err, errDies)
		d.restore()
		d.at = nil
		next := requested(t, d.db, d.org)
		_, err = d.work(next)
		require.ErrorIs(t, err, engine.ErrUnfinished)
		require.ErrorContains(t, err, lost.String())
		// The lost run is known again, and can be finished; then the next begins.
		again, err := d.db.State(d.org).GetRun(t.Context(), lost)
		require.NoError(t, err)
		require.True(t, again.Resumable)
		resume(t, d.db, d.org, lost)
		_, err = d.work(lost)
		require.NoError(t, err)
		d.has(1)
		_, err = d.work(requested(t, d.db, d.org))
		require.NoError(t, err)
		d.has(2)
	})
	t.Run("to an empty one", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, engine.WriteUpsert)
		d.backup()
		first, err := d.work(requested(t, d.db, d.org))
		require.NoError(t, err)
		d.restore()
		next, err := d.work(requested(t, d.db, d.org))
		require.NoError(t, err)
		require.Greater(t, next.Run.Ordinal, first.Run.Ordinal)
		require.Equal(t, first.Run.Route.Installation, next.Run.Route.Installation)
		d.has(1)
	})
}

// resume lets a partial run go on.
func resume(t *testing.T, d *DB, org, run uuid.UUID) {
	t.Helper()
	require.NoError(t, d.Tx(t.Context(), org, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `UPDATE runs SET state = 'running', resumable = false WHERE id = $1 AND state = 'failed' AND resumable`, run)
		return err
	}))
}
