package files

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/tranship-io/tranship/engine/rowtext"
	"github.com/tranship-io/tranship/engine/schema"
)

// readParquet decodes a file into records in flight. rowBytes is about the size
// of a row in memory: it bounds how many are decoded at once (invariant 11).
func readParquet(ctx context.Context, r parquet.ReaderAtSeeker, cols []column, rowBytes int64, mem memory.Allocator, take func(arrow.RecordBatch) error) error {
	pf, err := file.NewParquetReader(r, file.WithReadProps(parquet.NewReaderProperties(mem)))
	if err != nil {
		return err
	}
	defer func() { _ = pf.Close() }()
	batch := min(max(readBytes/max(rowBytes, 1), 1), readRows)
	fr, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: batch}, mem)
	if err != nil {
		return err
	}
	rr, err := fr.GetRecordReader(ctx, nil, nil)
	if err != nil {
		return err
	}
	defer rr.Release()
	for {
		rec, err := rr.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		flight, err := toFlight(rec, cols, mem)
		if err != nil {
			return err
		}
		err = take(flight)
		flight.Release()
		if err != nil {
			return err
		}
	}
}

// toFlight converts a record of a file to the in-flight types.
func toFlight(rec arrow.RecordBatch, cols []column, mem memory.Allocator) (arrow.RecordBatch, error) {
	if int(rec.NumCols()) < len(cols) {
		return nil, fmt.Errorf("the file has %d columns, not %d", rec.NumCols(), len(cols))
	}
	out := make([]arrow.Array, 0, len(cols))
	fields := make([]arrow.Field, 0, len(cols))
	defer func() {
		for _, a := range out {
			a.Release()
		}
	}()
	for i, c := range cols {
		if name := rec.ColumnName(i); name != c.field.Name {
			return nil, fmt.Errorf("column %d is named %q, not %q", i+1, name, c.field.Name)
		}
		arr, err := columnToFlight(c, rec.Column(i), mem)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", c.field.Name, err)
		}
		out = append(out, arr)
		fields = append(fields, arrow.Field{Name: c.field.Name, Type: arr.DataType(), Nullable: true})
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), out, rec.NumRows()), nil
}

func columnToFlight(c column, arr arrow.Array, mem memory.Allocator) (arrow.Array, error) {
	if ext, ok := arr.(array.ExtensionArray); ok {
		arr = ext.Storage()
	}
	if c.text {
		return parseColumn(c.field.Type, arr, mem)
	}
	if c.field.Type.Kind == schema.Array {
		return listToFlight(c.field.Type, arr, mem)
	}
	return asType(arr, c.field.Type.Arrow())
}

// asType returns the array as the wanted type: itself, or, for JSON, which the
// reader gives as bytes, the same bytes as text.
func asType(arr arrow.Array, want arrow.DataType) (arrow.Array, error) {
	if sameType(arr.DataType(), want) {
		arr.Retain()
		return arr, nil
	}
	if arr.DataType().ID() != arrow.BINARY || want.ID() != arrow.STRING {
		return nil, fmt.Errorf("it is %s in the file, not %s", arr.DataType(), want)
	}
	d := arr.Data()
	data := array.NewData(want, d.Len(), d.Buffers(), nil, d.NullN(), d.Offset())
	defer data.Release()
	return array.MakeFromData(data), nil
}

// parseColumn reads a column that is stored as text.
func parseColumn(t schema.Type, arr arrow.Array, mem memory.Allocator) (arrow.Array, error) {
	s, ok := arr.(*array.String)
	if !ok {
		return nil, fmt.Errorf("it is %s in the file, not text", arr.DataType())
	}
	b := array.NewBuilder(mem, t.Arrow())
	defer b.Release()
	for i := range s.Len() {
		if s.IsNull(i) {
			b.AppendNull()
			continue
		}
		if err := rowtext.ParseText(b, t, s.Value(i)); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

// listToFlight gives lists of one dimension their bounds back.
func listToFlight(t schema.Type, arr arrow.Array, mem memory.Allocator) (arrow.Array, error) {
	list, ok := arr.(*array.List)
	if !ok {
		return nil, fmt.Errorf("it is %s in the file, not a list", arr.DataType())
	}
	elems := list.ListValues()
	if ext, ok := elems.(array.ExtensionArray); ok {
		elems = ext.Storage()
	}
	elems, err := asType(elems, t.Elem.Arrow())
	if err != nil {
		return nil, fmt.Errorf("its elements: %w", err)
	}
	defer elems.Release()
	b := array.NewListBuilder(mem, arrow.PrimitiveTypes.Int32)
	defer b.Release()
	sizes := b.ValueBuilder().(*array.Int32Builder)
	for i := range list.Len() {
		if list.IsNull(i) {
			b.AppendNull()
			continue
		}
		b.Append(true)
		if from, to := list.ValueOffsets(i); to > from {
			sizes.Append(int32(to - from))
			sizes.Append(1)
		}
	}
	dims := b.NewArray()
	defer dims.Release()
	want := t.Arrow().(*arrow.StructType)
	values := array.NewData(want.Field(schema.ArrayValues).Type, list.Len(), list.Data().Buffers(),
		[]arrow.ArrayData{elems.Data()}, list.NullN(), list.Data().Offset())
	defer values.Release()
	data := array.NewData(want, list.Len(), []*memory.Buffer{validity(list)},
		[]arrow.ArrayData{dims.Data(), values}, list.NullN(), 0)
	defer data.Release()
	return array.NewStructData(data), nil
}

// validity returns a list's validity bits from its first row on, or nil.
func validity(list *array.List) *memory.Buffer {
	if list.NullN() == 0 {
		return nil
	}
	bits := make([]byte, (list.Len()+7)/8)
	for i := range list.Len() {
		if list.IsValid(i) {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return memory.NewBufferBytes(bits)
}
