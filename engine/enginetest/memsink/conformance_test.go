package memsink_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
)

func wires(rows []memsink.Row) [][]byte {
	var out [][]byte
	for _, r := range rows {
		out = append(out, r.Wire)
	}
	return out
}

func TestConformance(t *testing.T) {
	for name, opt := range map[string]memsink.Options{"logged": {}, "unlogged": {Unlogged: true}, "no right to terminate": {NoTerminate: true}} {
		t.Run(name, func(t *testing.T) {
			db := memsink.New(opt)
			sink := &memsink.Sink{DB: db}
			enginetest.RunSink(t, enginetest.SinkCase{
				Spec: sink.Spec(),
				Open: func(t *testing.T) engine.SinkSession {
					t.Helper()
					s, err := sink.Open(t.Context(), nil, engine.OpenOptions{})
					require.NoError(t, err)
					return s
				},
				Rows: func(_ *testing.T, target *engine.Target) [][]byte {
					rows, _ := db.Rows(target.Name)
					return wires(rows)
				},
			})
		})
	}
}

func TestObjectsConformance(t *testing.T) {
	db := memsink.NewObjects(memsink.Options{})
	sink := &memsink.ObjectSink{DB: db}
	enginetest.RunSink(t, enginetest.SinkCase{
		Spec: sink.Spec(),
		Open: func(t *testing.T) engine.SinkSession {
			t.Helper()
			s, err := sink.Open(t.Context(), nil, engine.OpenOptions{})
			require.NoError(t, err)
			return s
		},
		Rows: func(_ *testing.T, target *engine.Target) [][]byte {
			rows, _ := db.Rows(target.Name)
			return wires(rows)
		},
	})
}
