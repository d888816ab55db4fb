package pgsource

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgoutput"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// TestSlotHeld: a session of ours, of whichever run, that holds the slot is ended,
// another client's never.
func TestSlotHeld(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := pgtest.NewDatabase(t, pgtest.Shared(t))
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	d := &streamDescriptor{Version: 1, Slot: fmt.Sprintf("tranship_held_%d", conn.PgConn().PID()), Publication: "held"}
	_, err = conn.Exec(ctx, "CREATE PUBLICATION held")
	require.NoError(t, err)
	_, err = conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", d.Slot)
	require.NoError(t, err)
	free := func() bool {
		var active bool
		require.NoError(t, conn.QueryRow(ctx, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", d.Slot).Scan(&active))
		return !active
	}
	cfg, err := json.Marshal(map[string]any{"url": url})
	require.NoError(t, err)
	session, err := New().Open(ctx, engine.Config(cfg), engine.OpenOptions{RunID: "0192f0c1-2222-7333-8444-55556666abcd"})
	require.NoError(t, err)
	defer func() { _ = session.Close(ctx) }()
	ours, err := session.(*Session).openStream(ctx, d, engine.Split{ID: engine.StreamResource + "/0.0"}, 1, pgoutput.LSN(0))
	require.NoError(t, err)
	defer ours.close()
	require.False(t, free())
	ender := &readerConn{pc: conn.PgConn()}
	ended, err := endHolder(ctx, ender, d.Slot)
	require.NoError(t, err)
	require.True(t, ended)
	require.Eventually(t, free, 20*time.Second, 20*time.Millisecond)

	config, err := pgconn.ParseConfig(url)
	require.NoError(t, err)
	config.RuntimeParams["replication"], config.RuntimeParams["application_name"] = "database", "somebody"
	pc, err := pgconn.ConnectConfig(ctx, config)
	require.NoError(t, err)
	other := &walConn{pc: pc}
	require.NoError(t, other.start(ctx, "START_REPLICATION SLOT "+d.Slot+" LOGICAL 0/0 (proto_version '1', publication_names 'held')"))
	ended, err = endHolder(ctx, ender, d.Slot)
	require.NoError(t, err)
	require.False(t, ended)
	require.False(t, free())
	other.close()
	require.Eventually(t, func() bool {
		_, err := conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", d.Slot)
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
}

func TestChangeFindings(t *testing.T) {
	t.Parallel()
	good := changeFacts{level: "logical", keepSize: "10GB", right: true, slots: 5, senders: 5}
	for name, c := range map[string]struct {
		change         func(*changeFacts)
		level, message string
	}{
		"good":       {func(*changeFacts) {}, "ok", "can be read; 5 replication slots are left"},
		"level":      {func(f *changeFacts) { f.level, f.keepSize = "replica", "-1" }, "ok", `wal_level is "replica"`},
		"right":      {func(f *changeFacts) { f.right = false }, "warning", "may not use replication"},
		"slots":      {func(f *changeFacts) { f.slots = 1 }, "warning", "1 replication slots are left"},
		"no senders": {func(f *changeFacts) { f.senders = -1 }, "warning", "0 WAL senders are left"},
		"keep":       {func(f *changeFacts) { f.keepSize = "-1" }, "warning", "max_slot_wal_keep_size is -1"},
	} {
		f := good
		c.change(&f)
		found := f.findings()
		require.Len(t, found, 1, name)
		require.Equal(t, c.level, found[0].Level, name)
		require.Contains(t, found[0].Message, c.message, name)
	}
}
