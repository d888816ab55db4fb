package ends_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/compose/ends"
	"github.com/tranship-io/tranship/pipeline"
)

// cutSource loses its connection in the first looks.
type cutSource struct {
	engine.SourceSession
	looks int
	err   error
}

func (s *cutSource) Discover(context.Context, []string) ([]engine.Resource, error) {
	if s.looks++; s.looks <= 2 {
		return nil, s.err
	}
	return []engine.Resource{{Name: "public.orders", Path: []string{"public", "orders"}}}, nil
}

func TestALostConnectionIsNoReasonToGiveUpDiscovery(t *testing.T) {
	e := ends.Ends{Doc: &pipeline.Document{Resources: []pipeline.Resource{{Name: "public.orders"}}}}
	src := &cutSource{err: engine.Retryablef("terminating connection due to administrator command")}
	found, err := e.Choose(t.Context(), src)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, 3, src.looks)

	src = &cutSource{err: engine.Permanentf("grant it", "no right to read")}
	_, err = e.Choose(t.Context(), src)
	require.ErrorContains(t, err, "no right to read (grant it)")
	require.Equal(t, engine.Permanent, engine.ClassOf(err))
	require.Equal(t, 1, src.looks)
}

// cutSources lose the connection of a session that is being opened.
type cutSources struct {
	engine.Source
	opened int
	err    error
}

func (*cutSources) Spec() engine.Spec { return engine.Spec{Name: "cut", Config: &struct{}{}} }

func (s *cutSources) Open(context.Context, engine.Config, engine.OpenOptions) (engine.SourceSession, error) {
	if s.opened++; s.opened <= 2 {
		return nil, s.err
	}
	return &cutSource{}, nil
}

func TestALostConnectionIsNoReasonToGiveUpOpening(t *testing.T) {
	source := &cutSources{err: engine.Retryablef("terminating connection due to administrator command")}
	e := ends.Ends{
		Doc:     &pipeline.Document{Source: pipeline.Endpoint{Connector: "cut"}},
		Catalog: catalog.Of([]engine.Source{source}, nil),
	}
	_, err := e.OpenSource(t.Context(), engine.OpenOptions{})
	require.NoError(t, err)
	require.Equal(t, 3, source.opened)

	source.opened, source.err = 0, engine.Permanentf("name another", "no such database")
	_, err = e.OpenSource(t.Context(), engine.OpenOptions{})
	require.ErrorContains(t, err, "no such database")
	require.Equal(t, engine.Permanent, engine.ClassOf(err))
	require.Equal(t, 1, source.opened)
}
