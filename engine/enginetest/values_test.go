package enginetest

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine/schema"
)

func TestValuesHasEveryKind(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	s, rec, err := Values(mem)
	require.NoError(t, err)
	defer rec.Release()
	require.NoError(t, s.Validate())
	kinds := map[schema.Kind]bool{}
	for _, f := range s.Fields {
		kinds[f.Type.Kind] = true
	}
	for _, k := range []schema.Kind{schema.Unknown, schema.Bool, schema.Int8, schema.Int16, schema.Int32, schema.Int64, schema.Uint8, schema.Uint16,
		schema.Uint32, schema.Uint64, schema.Float32, schema.Float64, schema.Decimal, schema.String, schema.Bytes, schema.Date, schema.Time,
		schema.Timestamp, schema.TimestampTZ, schema.Interval, schema.JSON, schema.JSONB, schema.UUID, schema.Enum, schema.Array} {
		require.True(t, kinds[k], "kind %s", k)
	}
	rows, err := CanonicalRows(&s, rec)
	require.NoError(t, err)
	require.Len(t, rows, 7)
}
