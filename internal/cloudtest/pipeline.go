package cloudtest

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/internal/awsadapter/kmskeys"
	"github.com/tranship-io/tranship/store"
)

// Organization migrates the database and makes the first organization. It returns
// the system as an actor there, and an admin key.
func (i *Installation) Organization() (control.Actor, string) {
	i.t.Helper()
	ctx := i.t.Context()
	db, err := store.Open(ctx, store.Config{URL: i.URL})
	require.NoError(i.t, err)
	defer db.Close()
	require.NoError(i.t, db.Migrate(ctx))
	signer, err := access.NewSigner([][]byte{signingKey()})
	require.NoError(i.t, err)
	service, err := access.New(access.Config{Store: db.Access(), Signer: signer})
	require.NoError(i.t, err)
	var key string
	_, err = service.Bootstrap(ctx, "main", "main", func(text string) error { key = text; return nil })
	require.NoError(i.t, err)
	var id uuid.UUID
	i.Query(i.URL, `SELECT id FROM tranship.organizations`, &id)
	return control.System(id), key
}

// Pipeline makes a pipeline from the sample source into the target database.
func (i *Installation) Pipeline(a control.Actor, name string, rows int) {
	i.t.Helper()
	ctx := i.t.Context()
	db, err := store.Open(ctx, store.Config{URL: i.URL})
	require.NoError(i.t, err)
	defer db.Close()
	keyring := kmskeys.New(i.AWS, i.Env["TRANSHIP_KMS_KEY"])
	specs := catalog.New(io.Discard)
	resolver := secrets.Secrets{secrets.ProviderLocal: &secrets.Local{Store: db, Keyring: keyring}}
	drafts := &connections.Service{Store: db, Catalog: specs, Keyring: keyring, Providers: resolver.Providers()}
	src, err := drafts.Create(ctx, a, connections.Draft{Name: name + "-from", Role: connections.Source, Connector: "sample",
		Config: json.RawMessage(fmt.Sprintf(`{"rows":%d,"splits":4}`, rows))})
	require.NoError(i.t, err)
	dst, err := drafts.Create(ctx, a, connections.Draft{Name: name + "-to", Role: connections.Sink, Connector: "postgres",
		Config: json.RawMessage(`{}`), Values: map[string]string{"url": i.Target}})
	require.NoError(i.t, err)
	var g pipelines.Graph
	require.NoError(i.t, json.Unmarshal(fmt.Appendf(nil, `{"nodes":[{"id":"a","role":"source","connection":%q},{"id":"b","role":"sink","connection":%q}],
		"edges":[{"from":"a","to":"b","resource":"sample.orders","write":"append","target":%q}],"settings":{"slots":2}}`, src.ID, dst.ID, "public."+name), &g))
	_, err = (&pipelines.Service{Store: db, Connections: db, Catalog: specs, Drafts: drafts, Secrets: resolver}).Create(ctx, a, pipelines.Draft{Name: name, Graph: g})
	require.NoError(i.t, err)
}
