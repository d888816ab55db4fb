package files

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/tranship-io/tranship/engine/rowtext"
	"github.com/tranship-io/tranship/engine/schema"
)

// readParquet decodes a file into records in flight. rowBytes is about the size
// of a row in memory: it bounds how many are decoded at once (invariant 11).
func readParquet(ctx context.Context, r parquet.ReaderAtSeeker, cols []column, rowBytes int64, mem memory.Allocator, take func(arrow.RecordBatch) error) error {
	var pf *file.Reader
	err := guard(func() (err error) {
		pf, err = file.NewParquetReader(r, file.WithReadProps(parquet.NewReaderProperties(mem)))
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = pf.Close() }()
	if err := checkSchema(pf, cols); err != nil {
		return err
	}
	f := &parquetFile{cols: cols, mem: mem, readers: make([]*columnReader, len(cols))}
	f.fields = make([]arrow.Field, len(cols))
	for i, c := range cols {
		f.fields[i] = arrow.Field{Name: c.field.Name, Type: c.field.Type.Arrow(), Nullable: true}
		f.readers[i] = newColumnReader(c, pf, i, mem)
	}
	defer func() {
		for _, cr := range f.readers {
			cr.rr.Release()
		}
	}()
	batch := min(max(readBytes/max(rowBytes, 1), 1), readRows)
	for g := range pf.NumRowGroups() {
		group := pf.RowGroup(g)
		for i, cr := range f.readers {
			if err := guard(func() error { return cr.open(group, i) }); err != nil {
				return fmt.Errorf("row group %d: column %q: %w", g, cols[i].field.Name, err)
			}
		}
		for left := group.NumRows(); left > 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(left, batch)
			rec, err := f.read(n)
			if err != nil {
				return fmt.Errorf("row group %d: %w", g, err)
			}
			err = take(rec)
			rec.Release()
			if err != nil {
				return err
			}
			left -= n
		}
	}
	return nil
}

// guard makes errors of the panics with which the reader meets bytes that
// contradict themselves.
func guard(read func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it can't be decoded: %v", p)
		}
	}()
	return read()
}

// checkSchema compares names and types, as the file states them, with the plan's.
func checkSchema(pf *file.Reader, cols []column) error {
	want, err := parquetSchema(cols)
	if err != nil {
		return err
	}
	root := pf.MetaData().Schema.Root()
	if root.NumFields() < len(cols) {
		return fmt.Errorf("the file has %d columns, not %d", root.NumFields(), len(cols))
	}
	for i := range cols {
		got, want := root.Field(i), want.Field(i)
		if got.Name() != want.Name() {
			return fmt.Errorf("column %d is named %q, not %q", i+1, got.Name(), want.Name())
		}
		if !got.Equals(want) {
			return fmt.Errorf("column %q: its type is %s, not %s", got.Name(), got.LogicalType(), want.LogicalType())
		}
	}
	return nil
}

// parquetFile reads all columns side by side.
type parquetFile struct {
	cols    []column
	fields  []arrow.Field
	readers []*columnReader
	mem     memory.Allocator
}

// read returns the next rows of the open row group.
func (f *parquetFile) read(rows int64) (arrow.RecordBatch, error) {
	out := make([]arrow.Array, 0, len(f.cols))
	defer func() {
		for _, a := range out {
			a.Release()
		}
	}()
	for i, c := range f.cols {
		arr, err := f.column(i, rows)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", c.field.Name, err)
		}
		out = append(out, arr)
	}
	return array.NewRecordBatch(arrow.NewSchema(f.fields, nil), out, rows), nil
}

func (f *parquetFile) column(i int, rows int64) (arrow.Array, error) {
	var arr arrow.Array
	err := guard(func() (err error) {
		arr, err = f.readers[i].read(rows)
		return err
	})
	if err != nil {
		return nil, err
	}
	if arr.Len() != int(rows) {
		defer arr.Release()
		return nil, fmt.Errorf("it has %d rows where there should be %d", arr.Len(), rows)
	}
	if !f.cols[i].text {
		return arr, nil
	}
	defer arr.Release()
	return parseColumn(f.cols[i].field.Type, arr, f.mem)
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
