package files

import (
	"compress/gzip"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"

	"github.com/tranship-io/tranship/engine"
)

// encoder writes records, which all fit, into one file.
type encoder interface {
	// accepts tells whether a record may go into this file.
	accepts(rec arrow.RecordBatch) bool
	// write adds a record of the given size in memory.
	write(rec arrow.RecordBatch, bytes int64) error
	// size is about how many bytes the file would have if it ended now.
	size() int64
	// finish writes what is left; the file is whole then.
	finish() error
}

func newEncoder(w io.Writer, d *detail, cols []column, mem memory.Allocator) (encoder, error) {
	switch d.Format {
	case FormatParquet:
		return newParquetEncoder(w, d, cols, mem), nil
	case FormatJSONL:
		return newLineEncoder(w, d, &jsonlRows{cols: cols})
	case FormatCSV:
		return newLineEncoder(w, d, &csvRows{cols: cols})
	}
	return nil, engine.Bugf("format %q is not known", d.Format)
}

// rowFormat writes records as text.
type rowFormat interface {
	header(dst []byte) []byte
	// bind makes the record the one that is written.
	bind(rec arrow.RecordBatch) error
	row(dst []byte, i int) []byte
}

// lineFlush is when collected text goes on to compression and file.
const lineFlush = 256 << 10

// lineEncoder writes rows of text, compressed or not.
type lineEncoder struct {
	rows   rowFormat
	out    *countingWriter
	squash io.WriteCloser
	buf    []byte
}

func newLineEncoder(w io.Writer, d *detail, rows rowFormat) (*lineEncoder, error) {
	e := &lineEncoder{rows: rows, out: &countingWriter{w: w}}
	var err error
	switch d.Compression {
	case CompressionGzip:
		e.squash, err = gzip.NewWriterLevel(e.out, gzip.BestSpeed)
	case CompressionZstd:
		// One goroutine, and a window of 1 MiB bounds its memory to a few MiB.
		e.squash, err = zstd.NewWriter(e.out, zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(true))
	case CompressionNone:
		e.squash = plainWriter{e.out}
	default:
		return nil, engine.Bugf("compression %q is not known", d.Compression)
	}
	if err != nil {
		return nil, engine.Bugf("begin compressing: %w", err)
	}
	e.buf = rows.header(e.buf)
	return e, nil
}

func (e *lineEncoder) write(rec arrow.RecordBatch, _ int64) error {
	if err := e.rows.bind(rec); err != nil {
		return err
	}
	for i := range int(rec.NumRows()) {
		e.buf = e.rows.row(e.buf, i)
		if len(e.buf) >= lineFlush {
			if err := e.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *lineEncoder) flush() error {
	_, err := e.squash.Write(e.buf)
	e.buf = e.buf[:0]
	if cap(e.buf) > 4*lineFlush {
		e.buf = nil // one wide row shall not keep its memory
	}
	return err
}

func (e *lineEncoder) accepts(arrow.RecordBatch) bool { return true }

func (e *lineEncoder) size() int64 { return e.out.n + int64(len(e.buf)) }

func (e *lineEncoder) finish() error {
	if err := e.flush(); err != nil {
		return err
	}
	return e.squash.Close()
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

type plainWriter struct{ io.Writer }

func (plainWriter) Close() error { return nil }
