package files

import (
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/klauspost/compress/zstd"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/rowtext"
	"github.com/tranship-io/tranship/engine/schema"
)

const (
	// Pages share pageBudget among the columns, between these bounds: at 16
	// columns a page has 512 KiB, at 1,000 columns the least.
	minPage = 16 << 10
	maxPage = 1 << 20
	// minRowGroup keeps a mistyped option from making a row group a batch row.
	minRowGroup = 64 << 10
	// maxRowGroups is below the format's limit of 32,767 in a file.
	maxRowGroups = 30000
	// dictionaryLimit is where a column's dictionary ends and plain values begin:
	// beyond it the index costs more than it saves.
	dictionaryLimit = 256 << 10
	// writeBatch is how many values are encoded at a time.
	writeBatch = 4096
)

// parquetEncoder writes row groups bounded in bytes. A row group's finished
// pages wait in memory, compressed, until all of its columns can be written.
type parquetEncoder struct {
	out   io.Writer
	d     *detail
	cols  []column
	mem   memory.Allocator
	w     *file.Writer
	group file.BufferedRowGroupWriter
	// raw is the size in memory of the open group's rows.
	raw    int64
	groups int
	levels levels
	values valueWriter
	// wide are the columns that the file is prepared to find wide values in.
	wide map[int]bool
}

func newParquetEncoder(w io.Writer, d *detail, cols []column, mem memory.Allocator) *parquetEncoder {
	return &parquetEncoder{out: w, d: d, cols: cols, mem: mem, wide: map[int]bool{}}
}

func (e *parquetEncoder) write(rec arrow.RecordBatch, bytes int64) error {
	if e.w == nil {
		if err := e.begin(rec); err != nil {
			return err
		}
	}
	if e.group != nil && e.raw > 0 && e.raw+bytes > max(e.d.RowGroup, minRowGroup) {
		if err := e.endGroup(); err != nil {
			return err
		}
	}
	if e.group == nil {
		group, err := e.w.AppendBufferedRowGroupChecked()
		if err != nil {
			return wrapWrite(err)
		}
		e.group = group
		e.groups++
	}
	for i, c := range e.cols {
		if err := e.column(i, c, rec.Column(i)); err != nil {
			return err
		}
	}
	e.raw += bytes
	return nil
}

// begin opens the file; the first record decides which columns begin with a
// dictionary and which are worth compressing.
func (e *parquetEncoder) begin(rec arrow.RecordBatch) error {
	root, err := parquetSchema(e.cols)
	if err != nil {
		return err
	}
	page := min(max(int64(pageBudget/len(e.cols)), minPage), maxPage)
	props := []parquet.WriterProperty{
		parquet.WithAllocator(e.mem),
		parquet.WithVersion(parquet.V2_LATEST),
		parquet.WithDataPageVersion(parquet.DataPageV1),
		parquet.WithDataPageSize(page),
		parquet.WithBatchSize(writeBatch),
		parquet.WithDictionaryPageSizeLimit(dictionaryLimit),
		parquet.WithMaxRowGroupLength(math.MaxInt32),
		parquet.WithStats(true),
		parquet.WithCreatedBy("tranship (parquet-go version " + arrow.PkgVersion + ")"),
	}
	switch e.d.Compression {
	case CompressionZstd:
		props = append(props, parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1))
	case CompressionSnappy:
		props = append(props, parquet.WithCompression(compress.Codecs.Snappy))
	}
	sample, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return engine.Bugf("begin compressing: %w", err)
	}
	defer func() { _ = sample.Close() }()
	for i, c := range e.cols {
		path := parquet.ColumnPath{c.field.Name}
		leaf := leafOf(rec.Column(i))
		if leaf != rec.Column(i) && !c.text {
			path = append(path, "list", "element")
		}
		dictionary := false
		if wide(leaf) {
			e.wide[i] = true
			props = append(props, parquet.WithStatsPath(path, false))
		} else {
			dictionary = repeats(leaf)
		}
		props = append(props, parquet.WithDictionaryPath(path, dictionary))
		if !dictionary && !c.text && rises(leaf) {
			props = append(props, parquet.WithEncodingPath(path, parquet.Encodings.DeltaBinaryPacked),
				parquet.WithCompressionPath(path, compress.Codecs.Uncompressed))
			continue
		}
		if e.d.Compression == CompressionZstd && !dictionary && !c.text && !shrinks(sample, leaf) {
			props = append(props, parquet.WithCompressionPath(path, compress.Codecs.Uncompressed))
		}
	}
	w, err := file.NewParquetWriterWithError(e.out, root, file.WithWriterProps(parquet.NewWriterProperties(props...)))
	if err != nil {
		return wrapWrite(err)
	}
	e.w = w
	return nil
}

// column writes one column of a record into the open row group.
func (e *parquetEncoder) column(i int, c column, arr arrow.Array) error {
	cw, err := e.group.Column(i)
	if err != nil {
		return engine.Bugf("column %q: %w", c.field.Name, err)
	}
	if c.text {
		if arr, err = asText(c.field.Type, arr, e.mem); err != nil {
			return err
		}
		defer arr.Release()
	}
	leaf, defs, reps, err := e.levels.of(c, arr)
	if err != nil {
		return err
	}
	defer leaf.Release()
	if err := e.values.write(cw, leaf, defs, reps); err != nil {
		if classified(err) {
			return fmt.Errorf("column %q: %w", c.field.Name, err)
		}
		return wrapWrite(err)
	}
	return nil
}

func (e *parquetEncoder) endGroup() error {
	err := e.group.Close()
	e.group, e.raw = nil, 0
	return wrapWrite(err)
}

// leafOf returns the elements of an array column, any other column itself.
func leafOf(arr arrow.Array) arrow.Array {
	if st, ok := arr.(*array.Struct); ok {
		if a, err := rowtext.NewArrays(st); err == nil {
			return a.Elems
		}
	}
	return arr
}

// accepts wants a new file for the first wide value of a column: how a column is
// written is fixed for a file.
func (e *parquetEncoder) accepts(rec arrow.RecordBatch) bool {
	if e.w == nil {
		return true
	}
	for i := range e.cols {
		if !e.wide[i] && wide(leafOf(rec.Column(i))) {
			return false
		}
	}
	return true
}

func (e *parquetEncoder) size() int64 {
	if e.w == nil {
		return 0
	}
	if e.groups >= maxRowGroups {
		return math.MaxInt64
	}
	n := e.w.TotalBytesWritten()
	if e.group != nil {
		n += e.group.TotalCompressedBytes()
	}
	return n
}

func (e *parquetEncoder) finish() error {
	if e.w == nil {
		return engine.Bugf("a Parquet file without rows was finished")
	}
	if e.group != nil {
		if err := e.endGroup(); err != nil {
			return err
		}
	}
	return wrapWrite(e.w.Close())
}

// wrapWrite keeps an error of the file below; what the encoder itself refuses
// is ours: values were made to fit before.
func wrapWrite(err error) error {
	if err == nil {
		return nil
	}
	if classified(err) {
		return err
	}
	return engine.Bugf("write Parquet: %w", err)
}

// asText writes a column's values as text.
func asText(t schema.Type, arr arrow.Array, mem memory.Allocator) (arrow.Array, error) {
	if s, ok := arr.(*array.String); ok {
		s.Retain()
		return s, nil
	}
	write, err := rowtext.Text(t, arr)
	if err != nil {
		return nil, err
	}
	b := array.NewStringBuilder(mem)
	defer b.Release()
	b.Reserve(arr.Len())
	var buf []byte
	for i := range arr.Len() {
		if arr.IsNull(i) {
			b.AppendNull()
			continue
		}
		buf = write(buf[:0], i)
		b.BinaryBuilder.Append(buf)
	}
	return b.NewArray(), nil
}
