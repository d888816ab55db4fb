package pgsink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// pieceBytes is how much of a record is encoded at a time: the size of one of
// pgconn's CopyData messages, so that memory beyond the batch stays small.
const pieceBytes = 64 << 10

// pieceRows is how many rows are encoded between two looks at the size.
const pieceRows = 64

var errStopped = errors.New("the copy has ended")

// tupleReader presents an epoch's batches as one binary COPY stream. Wire rows
// pass as they are; generated columns are cut out of them. It checks each batch
// at the write boundary: what is sent is what the source has read.
type tupleReader struct {
	w    *writer
	ctx  context.Context
	mu   sync.Mutex
	stop bool

	// rest is what is ready to be read; wire what of the batch is still to be cut.
	rest, wire []byte
	// rec is the record being encoded, from row next on.
	batch *engine.Batch
	next  int
	buf   []byte
	begun bool
	ended bool
	err   error

	// rows counts the rows received, crc is chained over their batches.
	rows int64
	crc  uint32
}

// Read implements io.Reader. It is called by a goroutine of pgconn's.
func (r *tupleReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop {
		return 0, errStopped
	}
	n := 0
	for n < len(p) {
		if len(r.rest) == 0 {
			// What is ready goes out before the next batch is waited for.
			if n > 0 && r.batch == nil && r.begun && !r.ended {
				return n, nil
			}
			if err := r.fill(); err != nil {
				if n > 0 && errors.Is(err, io.EOF) {
					return n, nil
				}
				return n, err
			}
		}
		c := copy(p[n:], r.rest)
		r.rest = r.rest[c:]
		n += c
	}
	return n, nil
}

// fill makes rest not empty, or returns the end of the stream.
func (r *tupleReader) fill() error {
	switch {
	case r.err != nil:
		return r.err
	case !r.begun:
		r.begun = true
		r.rest = pgcopy.AppendHeader(r.buf[:0])
		return nil
	}
	for len(r.rest) == 0 {
		if r.batch != nil {
			if r.err = r.piece(); r.err != nil {
				return r.err
			}
			continue
		}
		if r.ended {
			return io.EOF
		}
		b, err := r.w.e.Next(r.ctx)
		if errors.Is(err, io.EOF) {
			r.ended = true
			r.rest = pgcopy.AppendTrailer(r.buf[:0])
			return nil
		}
		if err != nil {
			r.err = err
			return err
		}
		if r.err = r.take(b); r.err != nil {
			return r.err
		}
	}
	return nil
}

// take begins a batch.
func (r *tupleReader) take(b *engine.Batch) error {
	for _, op := range b.Ops {
		if op != engine.OpInsert {
			return engine.Bugf("write %s: the postgres sink does not apply changes of kind %d", b.Resource, op)
		}
	}
	var crc uint32
	if b.Record != nil {
		crc = integrity.RecordCRC(b.Record)
	} else {
		crc = integrity.CRC(0, b.Wire)
	}
	if crc != b.CRC {
		return &engine.MismatchError{Resource: r.w.t.Resource, Split: r.w.e.Split, What: "crc",
			Source: fmt.Sprintf("%08x", b.CRC), Destination: fmt.Sprintf("%08x", crc)}
	}
	if (r.w.encoder != nil) != (b.Record != nil) {
		return engine.Bugf("write %s: the batch is not in the wire format that was agreed on (%q)", b.Resource, r.w.t.Wire)
	}
	var be [4]byte
	binary.BigEndian.PutUint32(be[:], crc)
	r.crc = integrity.CRC(r.crc, be[:])
	r.rows += int64(b.Rows)
	r.batch, r.next, r.wire = b, 0, b.Wire
	return nil
}

// piece takes the next piece of the batch.
func (r *tupleReader) piece() error {
	switch {
	case r.w.encoder != nil:
		return r.encode()
	case len(r.w.cut) > 0:
		return r.cutOut()
	}
	r.rest, r.wire, r.batch = r.wire, nil, nil
	return nil
}

func (r *tupleReader) encode() error {
	r.buf = r.buf[:0]
	rows := int(r.batch.Record.NumRows())
	for r.next < rows && len(r.buf) < pieceBytes {
		to := min(r.next+pieceRows, rows)
		var err error
		if r.buf, err = r.w.encode(r.buf, r.batch.Record, r.next, to); err != nil {
			return err
		}
		r.next = to
	}
	r.rest = r.buf
	if r.next == rows {
		r.batch = nil
	}
	return nil
}

// cutOut copies tuples without the fields that the target computes itself.
func (r *tupleReader) cutOut() error {
	r.buf = r.buf[:0]
	fields := len(r.w.d.Columns)
	for len(r.wire) > 0 && len(r.buf) < pieceBytes {
		n, err := pgcopy.TupleLen(r.wire, fields)
		if err != nil {
			return err
		}
		if n == 0 {
			return engine.Bugf("write %s: a batch ends inside a row", r.batch.Resource)
		}
		r.buf = appendWithout(r.buf, r.wire[:n], fields, r.w.cut)
		r.wire = r.wire[n:]
	}
	r.rest = r.buf
	if len(r.wire) == 0 {
		r.batch = nil
	}
	return nil
}

// appendWithout appends a complete tuple without the fields in cut, in order.
func appendWithout(dst, tuple []byte, fields int, cut []int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(fields-len(cut)))
	pos, kept := 2, 2
	for f := range fields {
		start := pos
		n := int(int32(binary.BigEndian.Uint32(tuple[pos:])))
		pos += 4
		if n > 0 {
			pos += n
		}
		if len(cut) > 0 && cut[0] == f {
			dst = append(dst, tuple[kept:start]...)
			kept, cut = pos, cut[1:]
		}
	}
	return append(dst, tuple[kept:]...)
}

// halt keeps the reader from touching a batch again: pgconn may return while its
// goroutine is still inside Read.
func (r *tupleReader) halt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop = true
}

// copyIn sends the whole epoch into a table and checks that the server counted
// as many rows as were sent.
func (w *writer) copyIn(ctx context.Context, into string, columns []string) error {
	feed, cancel := context.WithCancel(ctx)
	r := &tupleReader{w: w, ctx: feed, buf: make([]byte, 0, pieceBytes)}
	tag, err := w.c.PgConn().CopyFrom(ctx, r, "COPY "+into+" ("+idents("", columns)+") FROM STDIN (FORMAT binary)")
	cancel()
	r.halt()
	switch {
	case r.err != nil:
		return r.err
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case code(err) == codeNoTable && w.d.Staging != "":
		return stagingLost(w.t, "the table "+w.d.staging().String()+" does not exist")
	case err != nil:
		return rowError(err, w.t.Resource, w.d.place())
	case !r.ended:
		return engine.Bugf("write %s: the copy ended before its rows", w.t.Resource)
	}
	w.rows, w.receipt.CRC = r.rows, r.crc
	w.receipt.SetAside = int64(len(w.aside))
	if got := tag.RowsAffected() + w.receipt.SetAside; got != r.rows {
		return w.mismatch("rows", fmt.Sprint(r.rows), fmt.Sprint(got))
	}
	return nil
}
