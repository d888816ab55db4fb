package memsink_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/integrity"
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
			suite := enginetest.SinkCase{
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
			}
			enginetest.RunSink(t, suite)
			enginetest.RunChangeSink(t, enginetest.ChangeCase{SinkCase: suite, Encode: encode})
		})
	}
}

// encode puts a batch's rows into the wire format: changes come in no other.
func encode(t *testing.T, target *engine.Target, b *engine.Batch) *engine.Batch {
	t.Helper()
	rows, err := enginetest.CanonicalRows(&target.Schema, b.Record)
	require.NoError(t, err)
	b.Record, b.Wire = nil, bytes.Join(rows, nil)
	b.CRC = integrity.CRC(0, b.Wire)
	return b
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
