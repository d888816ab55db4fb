package files

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

const (
	// readBytes bounds what is decoded at once: a batch ends when it is reached.
	readBytes = 4 << 20
	// readRows bounds the rows of a batch.
	readRows = 16 << 10
)

// readBack reads a stored file as a stranger would, converts it to the route's
// logical types, and digests it (P9).
func (s *session) readBack(ctx context.Context, t *engine.Target, d *detail, cols []column, key string, f *openFile) (integrity.Digest, int64, error) {
	var sum integrity.Digest
	var rows int64
	r, size, done, err := s.store.open(ctx, key)
	if err != nil {
		return sum, 0, err
	}
	defer done()
	hasher := integrity.NewHasher(&t.Schema)
	// Lineage columns stand last and are not part of the content.
	content := cols[:len(t.Schema.Fields)]
	take := func(rec arrow.RecordBatch) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := hasher.Rows(rec, 0, int(rec.NumRows()))
		sum.Add(got)
		rows += rec.NumRows()
		return err
	}
	mem := memory.DefaultAllocator
	switch d.Format {
	case FormatParquet:
		err = readParquet(ctx, io.NewSectionReader(r, 0, size), content, f.raw/max(f.rows, 1), mem, take)
	default:
		var lines io.Reader
		var stop func()
		if lines, stop, err = expand(io.NewSectionReader(r, 0, size), d.Compression); err == nil {
			if d.Format == FormatJSONL {
				err = readJSONL(lines, cols, mem, take)
			} else {
				err = readCSV(lines, cols, mem, take)
			}
			stop()
		}
	}
	if err != nil {
		if classified(err) {
			return sum, rows, err
		}
		return sum, rows, engine.Bugf("verify %s: read back %s: %w", t.Name, key, err)
	}
	return sum, rows, nil
}

func expand(r io.Reader, compression string) (io.Reader, func(), error) {
	switch compression {
	case CompressionGzip:
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { _ = z.Close() }, nil
	case CompressionZstd:
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return r, func() {}, nil
}

// rowBuilder collects rows read from text into records in flight.
type rowBuilder struct {
	b     *array.RecordBuilder
	types []schema.Type
	rows  int
	bytes int
	take  func(arrow.RecordBatch) error
}

func newRowBuilder(cols []column, mem memory.Allocator, take func(arrow.RecordBatch) error) *rowBuilder {
	r := &rowBuilder{take: take}
	fields := make([]arrow.Field, 0, len(cols))
	for _, c := range cols {
		if c.source == "" {
			continue
		}
		fields = append(fields, arrow.Field{Name: c.field.Name, Type: c.field.Type.Arrow(), Nullable: true})
		r.types = append(r.types, c.field.Type)
	}
	r.b = array.NewRecordBuilder(mem, arrow.NewSchema(fields, nil))
	return r
}

// end closes a row of the given size in the file.
func (r *rowBuilder) end(size int) error {
	r.rows++
	r.bytes += size
	if r.rows >= readRows || r.bytes >= readBytes {
		return r.flush()
	}
	return nil
}

func (r *rowBuilder) flush() error {
	if r.rows == 0 {
		return nil
	}
	r.rows, r.bytes = 0, 0
	for i := range r.types {
		if n := r.b.Field(i).Len(); n != r.b.Field(0).Len() {
			return fmt.Errorf("columns differ in length: %d and %d", n, r.b.Field(0).Len())
		}
	}
	rec := r.b.NewRecordBatch()
	defer rec.Release()
	return r.take(rec)
}

func (r *rowBuilder) release() { r.b.Release() }
