package files

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// benchTable has the columns that tables are made of: 16 of them.
func benchTable() schema.Schema {
	s := schema.Schema{Key: []string{"id"}, Fields: []schema.Field{key("id")}}
	for _, c := range []struct {
		name string
		t    schema.Type
	}{
		{"customer", kind(schema.Int32)}, {"product", kind(schema.Int64)}, {"quantity", kind(schema.Int16)},
		{"big", kind(schema.Int64)}, {"price", schema.Type{Kind: schema.Decimal, Precision: 12, Scale: 2}},
		{"tax", schema.Type{Kind: schema.Decimal, Precision: 20, Scale: 4}}, {"ratio", kind(schema.Float64)},
		{"score", kind(schema.Float64)}, {"ok", kind(schema.Bool)}, {"day", kind(schema.Date)},
		{"created", schema.Type{Kind: schema.TimestampTZ, Digits: 6}}, {"updated", schema.Type{Kind: schema.TimestampTZ, Digits: 6}},
		{"status", kind(schema.String)}, {"name", kind(schema.String)}, {"note", kind(schema.String)},
	} {
		s.Fields = append(s.Fields, field(c.name, c.t))
	}
	return s
}

func benchRecord(s *schema.Schema, rows, from int) arrow.RecordBatch {
	r := rand.New(rand.NewPCG(1, uint64(from)))
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer b.Release()
	words := []string{"new", "paid", "sent", "returned"}
	for i := range rows {
		for c, f := range s.Fields {
			if f.Nullable && c%5 == 0 && r.IntN(20) == 0 {
				b.Field(c).AppendNull()
				continue
			}
			switch v := b.Field(c).(type) {
			case *array.Int64Builder:
				switch f.Name {
				case "id":
					v.Append(int64(from + i))
				case "product":
					v.Append(r.Int64N(1000))
				default:
					v.Append(r.Int64())
				}
			case *array.Int32Builder:
				v.Append(r.Int32N(100000))
			case *array.Int16Builder:
				v.Append(int16(r.IntN(100)))
			case *array.Float64Builder:
				v.Append(r.Float64())
			case *array.BooleanBuilder:
				v.Append(r.IntN(2) == 0)
			case *array.Date32Builder:
				v.Append(arrow.Date32(18000 + r.IntN(2000)))
			case *array.TimestampBuilder:
				v.Append(arrow.Timestamp(1.7e15 + int64(from+i)*1e6 + r.Int64N(1e6)))
			case *array.Decimal128Builder:
				v.Append(decimal128.FromI64(r.Int64N(1e9)))
			case *array.StringBuilder:
				switch f.Name {
				case "status":
					v.Append(words[r.IntN(4)])
				case "name":
					v.Append(fmt.Sprintf("customer %d", r.IntN(50000)))
				default:
					v.Append(fmt.Sprintf("note %x %x %x", r.Uint64(), r.Uint64(), r.IntN(100)))
				}
			}
		}
	}
	return b.NewRecordBatch()
}

// BenchmarkEncode measures one slot's encoding of 16 columns; MB/s are of rows
// in memory.
func BenchmarkEncode(b *testing.B) {
	for _, cfg := range everyFormat {
		b.Run(formatName(cfg), func(b *testing.B) {
			s := benchTable()
			var recs []arrow.RecordBatch
			for k := range 8 {
				recs = append(recs, benchRecord(&s, 20000, 20000*k))
			}
			d := &detail{Format: cfg["format"].(string), Compression: CompressionNone, RowGroup: rowGroupDefault}
			if d.Format == FormatParquet {
				d.Compression = CompressionZstd
			}
			if c, ok := cfg["compression"]; ok {
				d.Compression = c.(string)
			}
			cols, err := planColumns(&engine.Target{Schema: s}, d)
			if err != nil {
				b.Fatal(err)
			}
			out := &countingWriter{w: io.Discard}
			enc, err := newEncoder(out, d, cols, memory.DefaultAllocator)
			if err != nil {
				b.Fatal(err)
			}
			f := &fitter{format: d.Format, columns: cols, target: &engine.Target{Schema: s}}
			size := recordBytes(recs[0])
			b.SetBytes(size)
			b.ReportAllocs()
			rows := 0
			for i := 0; b.Loop(); i++ {
				rec, _, err := f.fit(recs[i%len(recs)])
				if err != nil {
					b.Fatal(err)
				}
				if err := enc.write(rec, size); err != nil {
					b.Fatal(err)
				}
				rows += int(rec.NumRows())
				rec.Release()
			}
			b.StopTimer()
			if err := enc.finish(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(out.n)/float64(rows), "filebytes/row")
		})
	}
}
