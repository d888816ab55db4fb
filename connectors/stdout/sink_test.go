package stdout

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/sample"
	"github.com/tranship-io/tranship/engine"
)

// keep is a Writer that keeps the batches.
type keep struct{ batches []*engine.Batch }

func (k *keep) Reserve(context.Context, int64) error { return nil }
func (k *keep) Unreserve(int64)                      {}
func (k *keep) Write(_ context.Context, b *engine.Batch) error {
	k.batches = append(k.batches, b)
	return nil
}
func (k *keep) Keep(ctx context.Context, pos engine.Position) error { return k.Mark(ctx, pos) }

func (k *keep) Mark(context.Context, engine.Position) error { return nil }

func TestPrintsStrictJSON(t *testing.T) {
	t.Parallel()
	src, err := sample.NewSource().Open(t.Context(), engine.Config(`{"rows":50,"specials":true}`), engine.OpenOptions{})
	require.NoError(t, err)
	plan, err := src.Plan(t.Context(), engine.PlanRequest{Selection: engine.Selection{Resource: "sample.kinds"}, Read: engine.ReadFull})
	require.NoError(t, err)
	k := &keep{}
	_, err = src.Read(t.Context(), engine.ReadRequest{Split: plan.Splits[0], Plan: plan, BatchBytes: 64 << 10}, k)
	require.NoError(t, err)

	var out bytes.Buffer
	s, err := NewSink(&out).Open(t.Context(), engine.Config(`{"resource":true}`), engine.OpenOptions{})
	require.NoError(t, err)
	target, err := s.Plan(t.Context(), engine.TargetRequest{Plan: plan, Read: engine.ReadFull, Write: engine.WriteAppend})
	require.NoError(t, err)
	next := 0
	r, err := s.Apply(t.Context(), &engine.Epoch{
		Targets: map[string]*engine.Target{"sample.kinds": target}, Split: plan.Splits[0].ID,
		Next: func(context.Context) (*engine.Batch, error) {
			if next == len(k.batches) {
				return nil, io.EOF
			}
			next++
			return k.batches[next-1], nil
		},
		End: func() engine.EpochEnd { return engine.EpochEnd{Rows: 50} },
	})
	require.NoError(t, err)
	require.EqualValues(t, 50, r.Applied)
	require.EqualValues(t, out.Len(), r.Bytes)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, lines, 50)
	for _, l := range lines {
		var row map[string]any
		require.NoError(t, json.Unmarshal([]byte(l), &row), l)
		require.Equal(t, "sample.kinds", row["_resource"])
		require.Len(t, row, len(plan.Resource.Schema.Fields)+1)
	}

	k.batches[0].CRC++
	next = 0
	_, err = s.Apply(t.Context(), &engine.Epoch{
		Targets: map[string]*engine.Target{"sample.kinds": target},
		Next:    func(context.Context) (*engine.Batch, error) { return k.batches[0], nil },
	})
	var mismatch *engine.MismatchError
	require.ErrorAs(t, err, &mismatch)
}

func TestRefusesWhatItCannotPromise(t *testing.T) {
	t.Parallel()
	s, err := NewSink(io.Discard).Open(t.Context(), engine.Config(`{}`), engine.OpenOptions{})
	require.NoError(t, err)
	plan := &engine.SourcePlan{Resource: engine.Resource{Name: "a.b"}}
	for _, req := range []engine.TargetRequest{
		{Plan: plan, Write: engine.WriteReplace},
		{Plan: plan, Write: engine.WriteAppend, Verify: engine.VerifyDigest},
	} {
		_, err := s.Plan(t.Context(), req)
		require.Equal(t, engine.Permanent, engine.ClassOf(err))
	}
	_, err = NewSink(nil).Open(t.Context(), engine.Config(`{"x":1}`), engine.OpenOptions{})
	require.Error(t, err)
}
