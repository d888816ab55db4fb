package pgoutput

import (
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var record = flag.Bool("record", false, "write testdata anew from the server")

const made = `CREATE TABLE made (id bigint PRIMARY KEY, body text, n numeric, at timestamptz);
	ALTER TABLE made ALTER body SET STORAGE EXTERNAL;
	CREATE TABLE whole (a int, b text); ALTER TABLE whole REPLICA IDENTITY FULL;
	CREATE PUBLICATION p FOR TABLE made, whole`

var changes = []string{
	`INSERT INTO made VALUES (1, repeat('x', 3000), 1.50, '2026-12-01 12:00:00+00'), (2, NULL, 'NaN', 'infinity')`,
	`UPDATE made SET n = 7 WHERE id = 1`,
	`UPDATE made SET id = 10 WHERE id = 1`,
	`BEGIN; INSERT INTO whole VALUES (1, 'a'), (1, 'a'); SAVEPOINT s; DELETE FROM whole; ROLLBACK TO s; UPDATE whole SET b = 'c'; COMMIT`,
	`DELETE FROM made WHERE id = 2`,
	`DELETE FROM whole WHERE ctid = (SELECT min(ctid) FROM whole)`,
	`ALTER TABLE made ADD COLUMN more int; INSERT INTO made VALUES (3, 'y', 0, now() - now() + '2026-12-01'::timestamptz, 5)`,
	`TRUNCATE made, whole`,
	`SELECT pg_logical_emit_message(true, 'tranship', 'hello')`,
}

// recorded makes changes on a real server and returns the messages that it sends,
// in hexadecimal, a line each.
func recorded(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, pgtest.NewDatabase(t, pgtest.Shared(t)))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	exec := func(sql string) {
		t.Helper()
		_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
		require.NoError(t, err, sql)
	}
	exec(made)
	slot := fmt.Sprintf("golden_%d", conn.PgConn().PID())
	exec(`SELECT pg_create_logical_replication_slot('` + slot + `', 'pgoutput')`)
	defer exec(`SELECT pg_drop_replication_slot('` + slot + `')`)
	for _, sql := range changes {
		exec(sql)
	}
	var version int
	require.NoError(t, conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version))
	options := ""
	if version >= 140000 {
		options = ", 'binary', 'true', 'messages', 'true'"
	}
	rows, err := conn.Query(ctx, `SELECT encode(data, 'hex') FROM pg_logical_slot_peek_binary_changes('`+slot+`', NULL, NULL, 'proto_version', '1', 'publication_names', 'p'`+options+`)`)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(lines, "\n") + "\n"
}

// told writes the messages without what differs from server to server.
func told(t *testing.T, lines string) string {
	t.Helper()
	var d Decoder
	names := map[uint32]string{}
	var out strings.Builder
	for line := range strings.Lines(lines) {
		data, err := hex.DecodeString(strings.TrimSpace(line))
		require.NoError(t, err)
		m, err := d.Decode(data)
		require.NoError(t, err)
		switch m.Kind {
		case Begin:
			require.NotZero(t, m.LSN)
			require.NotZero(t, m.XID)
			require.GreaterOrEqual(t, m.At.Year(), 2026)
			out.WriteString("begin\n")
		case Commit:
			require.Greater(t, m.End, m.LSN)
			out.WriteString("commit\n")
		case Relation:
			names[m.Table.OID] = m.Table.Name
			fmt.Fprintf(&out, "table %s.%s %c", m.Table.Schema, m.Table.Name, m.Table.Identity)
			for _, c := range m.Table.Columns {
				fmt.Fprintf(&out, " %s:%d:%v", c.Name, c.Type, c.Key)
			}
			out.WriteString("\n")
		case Truncate:
			out.WriteString("truncate")
			for _, oid := range m.OIDs {
				out.WriteString(" " + names[oid])
			}
			out.WriteString("\n")
		case Logical:
			fmt.Fprintf(&out, "message %s %s\n", m.Prefix, m.Content)
		case Insert, Update, Delete:
			fmt.Fprintf(&out, "%c %s old %v%s new%s\n", m.Kind, names[m.OID], m.Full, fields(m.Old), fields(m.New))
		default:
			fmt.Fprintf(&out, "%c\n", m.Kind)
		}
	}
	return out.String()
}

func fields(list []Field) string {
	var out strings.Builder
	for _, f := range list {
		text := string(f.Data)
		if f.Kind == Binary {
			text = hex.EncodeToString(f.Data)
		}
		if len(text) > 40 {
			text = fmt.Sprintf("%s…%d", text[:10], len(f.Data))
		}
		fmt.Fprintf(&out, " %c%s", f.Kind, text)
	}
	return out.String()
}

// TestRecorded decodes what servers of every version sent once, and what this one
// sends now; to record: go test -run TestRecorded ./connectors/postgres/pgoutput -record
func TestRecorded(t *testing.T) {
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, pgtest.Shared(t).URL("postgres"))
	require.NoError(t, err)
	var major int
	require.NoError(t, conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000`).Scan(&major))
	require.NoError(t, conn.Close(ctx))
	live := recorded(t)
	file := func(ext string) string { return filepath.Join("testdata", fmt.Sprintf("%d.%s", major, ext)) }
	if *record {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file("hex"), []byte(live), 0o600))
		require.NoError(t, os.WriteFile(file("txt"), []byte(told(t, live)), 0o600))
	}
	found, err := filepath.Glob("testdata/*.hex")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, name := range found {
		lines, err := os.ReadFile(name)
		require.NoError(t, err)
		want, err := os.ReadFile(strings.TrimSuffix(name, "hex") + "txt")
		require.NoError(t, err)
		require.Equal(t, string(want), told(t, string(lines)), name)
		if name == file("hex") {
			require.Equal(t, string(want), told(t, live), "the server speaks as it did")
		}
	}
}

func TestDamagedMessages(t *testing.T) {
	lines, err := os.ReadFile("testdata/17.hex")
	require.NoError(t, err)
	var d Decoder
	for line := range strings.Lines(string(lines)) {
		data, err := hex.DecodeString(strings.TrimSpace(line))
		require.NoError(t, err)
		for n := range data {
			_, err := d.Decode(data[:n])
			require.Error(t, err, "%x cut after %d", data, n)
		}
		_, err = d.Decode(append(data, 0))
		require.Error(t, err)
	}
	_, err = d.Decode([]byte("S\x00\x00\x00\x01\x01"))
	require.ErrorContains(t, err, "type \"S\"")
}

func TestLSN(t *testing.T) {
	l, err := ParseLSN("16/B374D848")
	require.NoError(t, err)
	require.Equal(t, "16/B374D848", l.String())
	require.Equal(t, "00000016B374D848", l.Sortable())
	for _, bad := range []string{"", "1", "1/", "/1", "x/1", "1/100000000", "1/2/3"} {
		_, err := ParseLSN(bad)
		require.Error(t, err, bad)
	}
}

func FuzzDecoder(f *testing.F) {
	found, _ := filepath.Glob("testdata/*.hex")
	for _, name := range found {
		lines, err := os.ReadFile(name)
		require.NoError(f, err)
		for line := range strings.Lines(string(lines)) {
			data, err := hex.DecodeString(strings.TrimSpace(line))
			require.NoError(f, err)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d Decoder
		m, err := d.Decode(data)
		if err != nil {
			return
		}
		// Whatever is decoded lies within the message.
		n := len(m.Prefix) + len(m.Content)
		for _, list := range [][]Field{m.Old, m.New} {
			for _, x := range list {
				n += len(x.Data)
			}
		}
		if n > len(data) {
			t.Fatalf("%d bytes of values in %d", n, len(data))
		}
	})
}

func BenchmarkDecoder(b *testing.B) {
	lines, err := os.ReadFile("testdata/17.hex")
	require.NoError(b, err)
	var insert []byte
	for line := range strings.Lines(string(lines)) {
		if data, _ := hex.DecodeString(strings.TrimSpace(line)); len(data) > 0 && data[0] == 'I' {
			insert = data
		}
	}
	var d Decoder
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(insert); err != nil {
			b.Fatal(err)
		}
	}
}
