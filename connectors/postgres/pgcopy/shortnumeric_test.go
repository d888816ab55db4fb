package pgcopy

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine/schema"
)

// TestShortNumeric: the quick way gives what the general one gives, of good and
// of broken numbers, or leaves them to it.
func TestShortNumeric(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	groups := []uint16{0, 1, 9, 10, 100, 1000, 5000, 9999, 10000, 65535}
	signs := []uint16{numericPositive, numericNegative, numericNaN, numericPosInf, 1}
	quick := 0
	for range 200_000 {
		typ := schema.Type{Kind: schema.Decimal, Precision: 1 + r.IntN(38)}
		typ.Scale = r.IntN(typ.Precision + 1)
		count := r.IntN(5)
		v := binary.BigEndian.AppendUint16(nil, uint16(count))
		if r.IntN(50) == 0 {
			v[1]++
		}
		v = binary.BigEndian.AppendUint16(v, uint16(r.IntN(8)-4))
		v = binary.BigEndian.AppendUint16(v, signs[min(r.IntN(40), len(signs)*4-1)/4%len(signs)])
		v = binary.BigEndian.AppendUint16(v, uint16(typ.Scale))
		for range count {
			v = binary.BigEndian.AppendUint16(v, groups[r.IntN(len(groups))])
		}
		decode := func(quickly bool) (array.Builder, *misfit) {
			b := array.NewBuilder(memory.DefaultAllocator, typ.Arrow())
			b.Reserve(1)
			c := newColumnDecoder("n", typ, b)
			if !quickly {
				c.limit = 0
			} else if c.shortNumeric(v) {
				quick++
				return b, nil
			}
			return b, c.append(v)
		}
		got, bad := decode(true)
		want, wantBad := decode(false)
		require.Equal(t, wantBad, bad, "%s of %x", typ, v)
		require.True(t, array.Equal(want.NewArray(), got.NewArray()), "%s of %x", typ, v)
	}
	require.Greater(t, quick, 5_000)
}
