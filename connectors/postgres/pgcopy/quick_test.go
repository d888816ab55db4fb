package pgcopy

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine/schema"
)

// TestQuickIsCanonical: with memory behind a tuple, and without, a digester makes
// the same of it: encoding, length, and what is not complete or not right.
func TestQuickIsCanonical(t *testing.T) {
	t.Parallel()
	kinds := []schema.Type{{Kind: schema.Int64}, {Kind: schema.Int16}, {Kind: schema.Int32}, {Kind: schema.Float64},
		{Kind: schema.Decimal, Precision: 30, Scale: 2}, {Kind: schema.String}, {Kind: schema.Bool}}
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	numeric := func() []byte {
		groups := r.IntN(9)
		b := binary.BigEndian.AppendUint16(nil, uint16(groups))
		b = binary.BigEndian.AppendUint16(b, uint16(int16(r.IntN(6)-2)))
		b = binary.BigEndian.AppendUint16(b, []uint16{0, 0, 0x4000, 0xc000}[r.IntN(4)])
		if groups == 0 && r.IntN(2) == 0 {
			clear(b)
		}
		b = binary.BigEndian.AppendUint16(b, 2)
		for range groups {
			b = binary.BigEndian.AppendUint16(b, uint16(r.IntN(4)*r.IntN(2500)))
		}
		return b
	}
	quick := 0
	for range 20_000 {
		fields := make([]schema.Field, 1+r.IntN(8))
		tuple := binary.BigEndian.AppendUint16(nil, uint16(len(fields)))
		for i := range fields {
			fields[i] = schema.Field{Name: "c", Type: kinds[r.IntN(len(kinds))]}
			var v []byte
			switch fields[i].Type.Kind {
			case schema.Int64:
				v = random(8)
			case schema.Int16:
				v = random(2)
			case schema.Int32:
				v = random(4)
			case schema.Float64:
				v = random(8)
				if r.IntN(50) == 0 {
					v = binary.BigEndian.AppendUint64(nil, math.Float64bits(math.NaN())|1)
				}
			case schema.Decimal:
				v = numeric()
			case schema.String:
				v = random(r.IntN(40))
			default:
				v = random(1)
			}
			switch r.IntN(100) {
			case 0:
				v = random(r.IntN(10)) // of no length that its type has
			case 1, 2, 3:
				tuple = binary.BigEndian.AppendUint32(tuple, math.MaxUint32)
				continue
			case 4:
				if r.IntN(20) == 0 {
					tuple = append(tuple, 0xff, 0xff, 0xff, 0xf0)
					continue
				}
			}
			tuple = append(binary.BigEndian.AppendUint32(tuple, uint32(len(v))), v...)
		}
		if r.IntN(20) == 0 {
			tuple = tuple[:r.IntN(len(tuple))]
		}
		d, err := NewDigester(fields, nil)
		require.NoError(t, err)
		d.buf = make([]byte, 0, 1024)
		require.True(t, d.usual)
		// Stale bytes that would make the tuple complete.
		roomy := append(slices.Clone(tuple), random(2*margin+1024)...)[:len(tuple)]
		if n, _ := d.quick(roomy); n > 0 {
			quick++
		}
		n, got, gotErr := d.canonical(roomy)
		got = slices.Clone(got)
		d.usual = false
		wantN, want, wantErr := d.canonical(slices.Clip(tuple))
		require.Equal(t, wantErr, gotErr)
		require.Equal(t, wantN, n)
		require.Equal(t, want, got)
		// What canonical moves as it stands is what each field would be.
		if wantErr == nil && wantN > 0 {
			pos, slow := 2, []byte{}
			for i := range d.plans {
				field, next, err := fieldAt(tuple, pos)
				require.NoError(t, err)
				if pos = next; field == nil {
					slow = append(slow, 0xff, 0xff, 0xff, 0xff)
				} else if slow, err = d.field(slow, &d.plans[i], field); err != nil {
					t.Fatal(err)
				}
			}
			require.Equal(t, slow, got)
		}
	}
	require.Greater(t, quick, 5_000)
}
