package sample

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/zeebo/xxh3"

	"github.com/tranship-io/tranship/engine/schema"
)

// rowBytes is at least a row's size in memory: fixed-width values have at most
// 32 bytes, texts and arrays of the generator at most 200, the note its own.
func (s *session) rowBytes(sch schema.Schema) int64 {
	n := int64(0)
	for _, f := range sch.Fields {
		switch {
		case f.Name == "note":
			n += int64(max(s.cfg.RowBytes, 64)) + 5
		case f.Type.Kind == schema.Array, f.Type.Arrow().ID() == arrow.STRING, f.Type.Kind == schema.Bytes:
			n += 200
		default:
			n += 33
		}
	}
	return n
}

// generator fills records.
type generator struct {
	cfg     Config
	fields  []schema.Field
	seeds   []uint64
	builder *array.RecordBuilder
}

func newGenerator(cfg Config, resource string, sch *schema.Schema) *generator {
	g := &generator{cfg: cfg, fields: sch.Fields, builder: array.NewRecordBuilder(memory.DefaultAllocator, sch.Arrow())}
	for _, f := range sch.Fields {
		// By name, not by place: leaving columns out changes no value.
		g.seeds = append(g.seeds, xxh3.HashStringSeed(resource+"."+f.Name, cfg.Seed))
	}
	return g
}

func (g *generator) release() { g.builder.Release() }

func (g *generator) record() arrow.RecordBatch { return g.builder.NewRecordBatch() }

// add appends one row.
func (g *generator) add(row int64) {
	for i, f := range g.fields {
		b := g.builder.Field(i)
		r := &random{state: g.seeds[i] ^ uint64(row)*0x9e3779b97f4a7c15}
		switch {
		case f.Name == "id":
			b.(*array.Int64Builder).Append(row + 1)
		case f.Name == "updated_at":
			b.(*array.TimestampBuilder).Append(arrow.Timestamp(stamp(row)))
		case f.Nullable && r.below(10) == 0:
			b.AppendNull()
		case f.Name == "note":
			n := g.cfg.RowBytes
			if n == 0 {
				n = 20 + r.below(41)
			}
			b.(*array.StringBuilder).Append(r.text(n))
		default:
			g.value(b, f.Type, r)
		}
	}
}

// value appends a value of the type.
func (g *generator) value(b array.Builder, t schema.Type, r *random) {
	special := g.cfg.Specials && r.below(8) == 0
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(r.below(2) == 0)
	case *array.Int8Builder:
		b.Append(int8(r.next()))
	case *array.Int16Builder:
		b.Append(int16(r.next()))
	case *array.Int32Builder:
		b.Append(int32(r.next()))
	case *array.Int64Builder:
		b.Append(int64(r.next()))
	case *array.Uint8Builder:
		b.Append(uint8(r.next()))
	case *array.Uint16Builder:
		b.Append(uint16(r.next()))
	case *array.Uint32Builder:
		b.Append(uint32(r.next()))
	case *array.Uint64Builder:
		b.Append(r.next())
	case *array.Float32Builder:
		b.Append(float32(r.float(special)))
	case *array.Float64Builder:
		b.Append(r.float(special))
	case *array.Decimal128Builder:
		if special {
			b.Append([]decimal128.Num{schema.DecimalNaN, schema.DecimalPosInf, schema.DecimalNegInf}[r.below(3)])
			return
		}
		b.Append(decimal128.FromBigInt(r.digits(t.Precision)))
	case *array.Decimal256Builder:
		if special {
			b.Append([]decimal256.Num{schema.Decimal256NaN, schema.Decimal256PosInf, schema.Decimal256NegInf}[r.below(3)])
			return
		}
		b.Append(decimal256.FromBigInt(r.digits(t.Precision)))
	case *array.BinaryBuilder:
		raw := make([]byte, r.below(40))
		for i := range raw {
			raw[i] = byte(r.next())
		}
		b.Append(raw)
	case *array.Date32Builder:
		if special {
			b.Append([]arrow.Date32{arrow.Date32(schema.DatePosInf), arrow.Date32(schema.DateNegInf)}[r.below(2)])
			return
		}
		b.Append(arrow.Date32(r.below(40000) - 10000))
	case *array.Time64Builder:
		unit := int64(1e6)
		if t.Digits > 6 {
			unit = 1e9
		}
		b.Append(arrow.Time64(int64(r.next()>>1) % (86400 * unit)))
	case *array.TimestampBuilder:
		if special {
			b.Append([]arrow.Timestamp{arrow.Timestamp(schema.TimestampPosInf), arrow.Timestamp(schema.TimestampNegInf)}[r.below(2)])
			return
		}
		unit := int64(1e6)
		if t.Digits > 6 {
			unit = 1e9
		}
		b.Append(arrow.Timestamp(int64(r.next()>>1)%(4e9*unit) - 1e9*unit))
	case *array.MonthDayNanoIntervalBuilder:
		b.Append(arrow.MonthDayNanoInterval{
			Months: int32(r.below(100) - 50), Days: int32(r.below(100) - 50), Nanoseconds: int64(r.below(1e9)-5e8) * 1000,
		})
	case *array.FixedSizeBinaryBuilder:
		raw := binary.BigEndian.AppendUint64(nil, r.next())
		b.Append(binary.BigEndian.AppendUint64(raw, r.next()))
	case *array.StringBuilder:
		b.Append(stringOf(t, r, special))
	case *array.StructBuilder:
		g.list(b, t, r, special)
	}
}

// stringOf makes the text of a kind that travels as text.
func stringOf(t schema.Type, r *random, special bool) string {
	switch t.Kind {
	case schema.Decimal:
		if special {
			return []string{"NaN", "Infinity", "-Infinity"}[r.below(3)]
		}
		return fmt.Sprintf("%d.%019d", int64(r.next()), r.next()>>1)
	case schema.Enum:
		return t.Labels[r.below(len(t.Labels))]
	case schema.JSON:
		return fmt.Sprintf(`{"n": %d,  "s":%q}`, int32(r.next()), r.text(8))
	case schema.JSONB:
		return fmt.Sprintf(`{"a":[%d,null,true],"big":%d%d}`, r.below(100), r.next()|1<<63, r.next())
	case schema.Unknown:
		return fmt.Sprintf("(%d,%d)", r.below(100), r.below(100))
	}
	return []string{"", "NULL", "a,b \"c\"", "line\r\nbreak", "\\N", "\u00e9\u4e16\U0001F6A2", "x\x00y", r.text(12)}[r.below(8)]
}

// list appends an array: mostly of one dimension, at times empty or with NULLs.
func (g *generator) list(b *array.StructBuilder, t schema.Type, r *random, special bool) {
	dims := b.FieldBuilder(schema.ArrayDims).(*array.ListBuilder)
	vals := b.FieldBuilder(schema.ArrayValues).(*array.ListBuilder)
	b.Append(true)
	dims.Append(true)
	vals.Append(true)
	sizes := []int32{int32(r.below(5)), 1}
	if special {
		sizes = [][]int32{{2, 1, 3, 1}, {2, 0}}[r.below(2)]
	}
	n := int32(1)
	for k := 0; k < len(sizes); k += 2 {
		n *= sizes[k]
	}
	if n == 0 {
		return
	}
	for _, v := range sizes {
		dims.ValueBuilder().(*array.Int32Builder).Append(v)
	}
	for range n {
		if r.below(6) == 0 {
			vals.ValueBuilder().AppendNull()
			continue
		}
		g.value(vals.ValueBuilder(), *t.Elem, r)
	}
}

// random is a small generator with all of its state in a word (splitmix64).
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

func (r *random) float(special bool) float64 {
	if special {
		return []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)}[r.below(4)]
	}
	return float64(int64(r.next()>>12)-1<<51) / float64(int64(1)<<(r.below(40)+8))
}

const letters = "abcdefghijklmnopqrstuvwxyz      "

func (r *random) text(n int) string {
	b := make([]byte, n)
	for i := 0; i < n; {
		for v := r.next(); v != 0 && i < n; v >>= 5 {
			b[i] = letters[v&31]
			i++
		}
	}
	return string(b)
}

// digits makes an integer of up to so many decimal digits, of either sign.
func (r *random) digits(precision int) *big.Int {
	text := ""
	for len(text) < precision {
		text += strconv.FormatUint(r.next()|1<<63, 10)
	}
	n, _ := new(big.Int).SetString(text[:1+r.below(precision)], 10)
	if r.below(2) == 0 {
		n.Neg(n)
	}
	return n
}
