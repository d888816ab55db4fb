package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/secrets"
)

// No row of any table, index or log of changes holds a secret (invariant 10).
func TestNoSecretInTheDatabase(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	s.connection(t, "src", connections.Source)
	_, err := s.secrets.Put(ctx, s.a, "named", planted, secrets.AnyVersion)
	require.NoError(t, err)
	_, _, err = s.pipelines.Apply(ctx, s.a, pipelines.File{Text: []byte(shopFile), Variables: map[string]string{"SOURCE_URL": planted, "SSH_PASSWORD": planted, "SCHEMA": "x"}})
	require.NoError(t, err)
	// Drafts with a secret in the wrong place are refused, and do not repeat it.
	for _, d := range []connections.Draft{
		{Name: "n", Role: connections.Source, Connector: "db", Config: json.RawMessage(`{"url":"` + planted + `"}`)},
		{Name: "n", Role: connections.Source, Connector: "db", Config: json.RawMessage(`{"schema":"db://u:` + planted + `@h/d"}`)},
		{Name: "n", Role: connections.Source, Connector: "db", Secrets: map[string]secrets.Ref{"url": planted}},
		{Name: "n", Role: connections.Source, Connector: "db", Values: map[string]string{"schema": planted}},
	} {
		_, err := s.connections.Create(ctx, s.a, d)
		var invalid *control.InvalidError
		require.ErrorAs(t, err, &invalid)
		assert.NotContains(t, err.Error(), planted)
	}
	dump := dumpAll(t, s.d)
	require.Contains(t, dump, "shop-source", "the dump holds what it should")
	assert.NotContains(t, dump, planted)
	assert.NotContains(t, dump, fmt.Sprintf("%x", planted))
}

// dumpAll reads every row of every table as text.
func dumpAll(tb testing.TB, d *DB) string {
	tb.Helper()
	ctx := tb.Context()
	rows, err := d.app.Query(ctx, `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'tranship'`)
	require.NoError(tb, err)
	var tables []string
	for rows.Next() {
		var name string
		require.NoError(tb, rows.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(tb, rows.Err())
	var out bytes.Buffer
	for _, name := range tables {
		rows, err := d.app.Query(ctx, `SELECT t::text FROM `+name+` t`)
		require.NoError(tb, err)
		for rows.Next() {
			var text string
			require.NoError(tb, rows.Scan(&text))
			out.WriteString(name + " " + text + "\n")
		}
		require.NoError(tb, rows.Err())
	}
	return out.String()
}

// After a rotation all secrets are wrapped under the new key, those of every
// organization, and the old one may go.
func TestMasterKeyRotation(t *testing.T) {
	t.Parallel()
	ctx, a := t.Context(), newServices(t, newDB(t), "a")
	b := newServices(t, a.d, "b")
	for _, s := range []*services{a, b} {
		_, err := s.secrets.Put(ctx, s.a, "one", planted, 0)
		require.NoError(t, err)
		s.connection(t, "c", connections.Source)
	}
	before, after := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	both, err := secrets.NewMasterKeys(after, before)
	require.NoError(t, err)
	n, err := (&secrets.Local{Store: a.d, Keyring: both}).Rewrap(ctx)
	require.NoError(t, err)
	assert.Equal(t, 4, n)
	only, err := secrets.NewMasterKeys(after)
	require.NoError(t, err)
	local := &secrets.Local{Store: a.d, Keyring: only}
	for _, s := range []*services{a, b} {
		value, err := local.Resolve(ctx, s.a.Organization, "local:one")
		require.NoError(t, err)
		assert.Equal(t, planted, value)
	}
}
