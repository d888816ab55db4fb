package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/secrets"
)

func TestConnections(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	other := newServices(t, s.d, "b")
	c := s.connection(t, "shop", connections.Source)
	assert.EqualValues(t, 1, c.Version)
	assert.JSONEq(t, `{"schema":"x"}`, string(c.Config))

	got, err := s.connections.Get(ctx, s.a, "shop")
	require.NoError(t, err)
	assert.Equal(t, c, got)
	got, err = s.connections.Get(ctx, s.a, c.ID.String())
	require.NoError(t, err)
	assert.Equal(t, c, got)
	var missing *control.NotFoundError
	for _, ref := range []string{"nothing", c.ID.String(), "shop", "\x00", "a\xff"} {
		_, err = other.connections.Get(ctx, other.a, ref)
		require.ErrorAs(t, err, &missing, ref)
	}

	_, err = s.connections.Create(ctx, s.a, connections.Draft{Name: "shop", Role: connections.Source, Connector: "db"})
	var conflict *control.ConflictError
	require.ErrorAs(t, err, &conflict)
	assert.Equal(t, "name_taken", conflict.Code)
	other.connection(t, "shop", connections.Source)

	value, err := s.resolver.Resolve(ctx, s.a.Organization, c.Secrets["url"].Ref)
	require.NoError(t, err)
	assert.Equal(t, "db://"+planted, value)
	var unresolved *secrets.UnresolvedError
	_, err = s.resolver.Resolve(ctx, other.a.Organization, c.Secrets["url"].Ref)
	require.ErrorAs(t, err, &unresolved)

	// Kept by reference, then replaced by another secret: the old value ends.
	kept := connections.Draft{Name: "shop2", Role: connections.Source, Connector: "db", Secrets: map[string]secrets.Ref{"url": c.Secrets["url"].Ref}}
	c2, err := s.connections.Update(ctx, s.a, "shop", 1, kept)
	require.NoError(t, err)
	assert.EqualValues(t, 2, c2.Version)
	assert.Equal(t, "SHOP_URL", c2.Secrets["url"].Variable)
	var stale *control.StaleVersionError
	_, err = s.connections.Update(ctx, s.a, "shop2", 1, kept)
	require.ErrorAs(t, err, &stale)
	assert.EqualValues(t, 2, stale.Current)
	_, err = s.secrets.Put(ctx, s.a, "own", planted, 0)
	require.NoError(t, err)
	kept.Secrets["url"] = "local:own"
	_, err = s.connections.Update(ctx, s.a, "shop2", 2, kept)
	require.NoError(t, err)
	_, err = s.resolver.Resolve(ctx, s.a.Organization, c.Secrets["url"].Ref)
	require.ErrorAs(t, err, &unresolved, "the own secret ended")
	require.ErrorAs(t, s.secrets.Delete(ctx, s.a, "own", secrets.AnyVersion), &conflict)
	assert.Equal(t, "in_use", conflict.Code)
	kept.Secrets["url"] = "local:nothing"
	_, err = s.connections.Update(ctx, s.a, "shop2", 3, kept)
	var invalid *control.InvalidError
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, "secrets.url", invalid.Problems[0].Path)

	list, err := s.connections.Versions(ctx, s.a, "shop2", control.Page{Limit: 2})
	require.NoError(t, err)
	assert.Equal(t, []int64{3, 2}, []int64{list.Items[0].Version, list.Items[1].Version})
	list, err = s.connections.Versions(ctx, s.a, "shop2", control.Page{Limit: 2, After: list.Next})
	require.NoError(t, err)
	assert.Len(t, list.Items, 1)
	assert.Empty(t, list.Next)

	require.NoError(t, s.connections.Delete(ctx, s.a, "shop2", 3))
	require.ErrorAs(t, s.connections.Delete(ctx, s.a, "shop2", 0), &missing)
	require.NoError(t, s.secrets.Delete(ctx, s.a, "own", secrets.AnyVersion))
	again := s.connection(t, "shop2", connections.Source)
	assert.NotEqual(t, c.ID, again.ID)
}

func TestListsArePagedAndFiltered(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	sink := s.connection(t, "zz", connections.Sink)
	for i := range 7 {
		c := s.connection(t, fmt.Sprintf("c%d", i), connections.Source)
		_, err := s.pipelines.Create(ctx, s.a, pipelines.Draft{Name: fmt.Sprintf("p%d", i), Graph: graphOf(c.Name, "zz")})
		require.NoError(t, err)
	}
	var names []string
	page := control.Page{Limit: 3}
	for {
		list, err := s.connections.List(ctx, s.a, connections.Filter{Role: connections.Source}, page)
		require.NoError(t, err)
		for _, c := range list.Items {
			names = append(names, c.Name)
		}
		if list.Next == "" {
			break
		}
		// What comes before the cursor later does not move the next page.
		s.connection(t, fmt.Sprintf("a%d", len(names)), connections.Source)
		page.After = list.Next
	}
	assert.Equal(t, []string{"c0", "c1", "c2", "c3", "c4", "c5", "c6"}, names)
	found, err := s.pipelines.List(ctx, s.a, pipelines.Filter{Connection: sink.ID}, control.Page{})
	require.NoError(t, err)
	assert.Len(t, found.Items, 7)
	found, err = s.pipelines.List(ctx, s.a, pipelines.Filter{Name: "p3"}, control.Page{})
	require.NoError(t, err)
	assert.Len(t, found.Items, 1)
	_, err = s.pipelines.List(ctx, s.a, pipelines.Filter{}, control.Page{After: "!"})
	require.Error(t, err)
}

// A connection that a version takes up cannot end at the same moment.
func TestDeleteConnectionRacesWithItsUse(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	s.connection(t, "sink", connections.Sink)
	for i := range 30 {
		name := fmt.Sprintf("src%d", i)
		s.connection(t, name, connections.Source)
		var wg sync.WaitGroup
		var deleted, created error
		wg.Go(func() { deleted = s.connections.Delete(ctx, s.a, name, 0) })
		wg.Go(func() {
			_, created = s.pipelines.Create(ctx, s.a, pipelines.Draft{Name: fmt.Sprintf("p%d", i), Graph: graphOf(name, "sink")})
		})
		wg.Wait()
		require.NotEqual(t, deleted == nil, created == nil, "delete: %v, create: %v", deleted, created)
		var conflict *control.ConflictError
		var invalid *control.InvalidError
		if deleted != nil {
			require.ErrorAs(t, deleted, &conflict)
			assert.Equal(t, "in_use", conflict.Code)
			continue
		}
		require.ErrorAs(t, created, &invalid)
	}
}

func TestIdempotentCreates(t *testing.T) {
	t.Parallel()
	s := newServices(t, newDB(t), "a")
	ctx := control.WithIdempotency(t.Context(), control.Idempotency{Key: "k", Hash: []byte("1")})
	d := connections.Draft{Name: "c", Role: connections.Source, Connector: "db", Values: map[string]string{"url": planted}}
	one, err := s.connections.Create(ctx, s.a, d)
	require.NoError(t, err)
	two, err := s.connections.Create(ctx, s.a, d)
	require.NoError(t, err)
	assert.Equal(t, one, two)
	var conflict *control.ConflictError
	_, err = s.connections.Create(control.WithIdempotency(t.Context(), control.Idempotency{Key: "k", Hash: []byte("2")}), s.a, d)
	require.ErrorAs(t, err, &conflict)
	assert.Equal(t, "idempotency_key_reused", conflict.Code)
}

func TestForeignIDsAreNotThere(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a := newServices(t, newDB(t), "a")
	b := newServices(t, a.d, "b")
	a.connection(t, "src", connections.Source)
	a.connection(t, "sink", connections.Sink)
	p, err := a.pipelines.Create(ctx, a.a, pipelines.Draft{Name: "shop", Graph: graphOf("src", "sink")})
	require.NoError(t, err)
	_, err = a.secrets.Put(ctx, a.a, "named", planted, 0)
	require.NoError(t, err)
	for name, try := range map[string]func() error{
		"pipeline":          func() error { _, err := b.pipelines.Get(ctx, b.a, p.ID.String()); return err },
		"pause":             func() error { _, err := b.pipelines.SetPaused(ctx, b.a, p.ID.String(), true); return err },
		"delete":            func() error { return b.pipelines.Delete(ctx, b.a, p.ID.String(), 0) },
		"version":           func() error { _, err := b.pipelines.Version(ctx, b.a, p.ID.String(), 1); return err },
		"delete connection": func() error { return b.connections.Delete(ctx, b.a, p.Current.Graph.Nodes[0].Connection, 0) },
		"secret":            func() error { _, err := b.secrets.Get(ctx, b.a, "named"); return err },
		"delete secret":     func() error { return b.secrets.Delete(ctx, b.a, "named", secrets.AnyVersion) },
		"store version":     func() error { _, err := b.d.PipelineVersion(ctx, b.a.Organization, p.ID, 1); return err },
	} {
		var missing *control.NotFoundError
		require.ErrorAs(t, try(), &missing, name)
	}
	_, err = b.pipelines.Create(ctx, b.a, pipelines.Draft{Name: "shop", Graph: p.Current.Graph})
	var invalid *control.InvalidError
	require.ErrorAs(t, err, &invalid)
	_, err = b.connections.Create(ctx, b.a, connections.Draft{Name: "c", Role: connections.Source, Connector: "db", Secrets: map[string]secrets.Ref{"url": "local:named"}})
	require.ErrorAs(t, err, &invalid)
	items, err := b.d.PipelineVersions(ctx, b.a.Organization, p.ID, control.Page{})
	require.NoError(t, err)
	assert.Empty(t, items.Items)
	assert.NotEqual(t, uuid.Nil, p.ID)
}
