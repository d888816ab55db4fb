package pgsource

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// defaultBatchBytes is the size of batches when the engine wishes none.
const defaultBatchBytes = 1 << 20

// filler makes batches of the tuples of COPY messages and writes them. In wire mode
// the tuples are copied once, from the socket's buffer into the batch; for columns
// they are decoded where they lie.
type filler struct {
	out     engine.Writer
	bufs    *buffers
	digest  *pgcopy.Digester
	decoder *pgcopy.Decoder // nil in wire mode
	rows    *rowWatch
	res     string
	size    int64

	// buf holds complete tuples of the batch up to done, and after it the
	// beginning of one whose message did not end with it.
	buf      []byte
	done     int
	lastAt   int // where the last complete tuple begins
	count    int
	reserved int64
	header   bool
	trailer  bool
	seq      uint64
	// piece counts the tuples since begin; skipped and seen go with the next batch.
	piece   int64
	skipped int
	// policies names what of skipped the receipt counts.
	policies []engine.PolicyCount
	seen     []engine.RowID
	keep     bool // the current piece's rows are seen again by the next run
	// wrote is called after each write with the key of the batch's last row, if the
	// split has an order.
	wrote func(ctx context.Context, key []keyValue) error
}

func newFiller(s *Session, req *engine.ReadRequest, asText []bool, rows *rowWatch, out engine.Writer) (*filler, error) {
	f := &filler{out: out, bufs: s.buffers, rows: rows, res: req.Plan.Resource.Name, size: req.BatchBytes}
	if f.size <= 0 {
		f.size = defaultBatchBytes
	}
	fields := req.Plan.Resource.Schema.Fields
	var err error
	if f.digest, err = pgcopy.NewDigester(fields, asText); err != nil {
		return nil, err
	}
	if req.Wire == "" {
		f.decoder, err = pgcopy.NewDecoder(memory.DefaultAllocator, fields)
	}
	return f, err
}

// begin starts the stream of one piece.
func (f *filler) begin(p piece) {
	f.header, f.trailer, f.piece, f.keep = true, false, 0, p.seen
}

// data implements copySink.
func (f *filler) data(ctx context.Context, msg []byte) error {
	if f.header && len(f.buf) == f.done {
		n, err := pgcopy.ParseHeader(msg)
		if err != nil {
			return err
		}
		if n > 0 {
			f.header = false
			msg = msg[n:]
		}
	}
	if len(msg) == 0 {
		return nil
	}
	if f.decoder != nil && len(f.buf) == 0 && !f.header {
		return f.columns(ctx, msg)
	}
	dst, err := f.room(ctx, len(msg))
	if err != nil {
		return err
	}
	copy(dst, msg)
	return f.placed(ctx)
}

// room implements copySink: it makes place for n more bytes at the buffer's end,
// writing what is complete first, so that no reservation is held while a larger
// one is waited for (invariant 11).
func (f *filler) room(ctx context.Context, n int) ([]byte, error) {
	if f.decoder != nil {
		return f.scratch(ctx, n)
	}
	have := len(f.buf)
	if have+n > cap(f.buf) || int64(have+n) > f.reserved {
		if have == f.done {
			have = 0
			want := max(f.size, int64(n))
			if err := f.open(ctx, want); err != nil {
				return nil, err
			}
			f.buf = f.bufs.get(int(want))
		} else if err := f.grow(ctx, n); err != nil {
			return nil, err
		}
	}
	f.buf = f.buf[:have+n]
	return f.buf[have:], nil
}

// grow enlarges the buffer in the middle of a tuple, which a server that sends one
// message a row never asks for.
func (f *filler) grow(ctx context.Context, n int) error {
	want := int64(len(f.buf) + n)
	if err := f.reserve(ctx, want-f.reserved); err != nil {
		return err
	}
	bigger := make([]byte, len(f.buf), want)
	copy(bigger, f.buf)
	f.buf = bigger
	return nil
}

// maxSeen bounds the row hashes of one batch (1 MB of them).
const maxSeen = 1 << 16

// open begins a batch: what is there goes out, or is given back, before so many
// bytes are waited for, since two reads that each held some could wait for ever.
func (f *filler) open(ctx context.Context, bytes int64) error {
	if f.count > 0 || len(f.seen) >= maxSeen {
		if err := f.flush(ctx); err != nil {
			return err
		}
	}
	f.giveBack()
	return f.reserve(ctx, bytes)
}

func (f *filler) reserve(ctx context.Context, n int64) error {
	if n <= 0 {
		return nil
	}
	if err := f.out.Reserve(ctx, n); err != nil {
		return err
	}
	f.reserved += n
	return nil
}

// placed implements copySink: it takes the complete tuples of what was added.
func (f *filler) placed(ctx context.Context) error {
	if f.header {
		n, err := pgcopy.ParseHeader(f.buf[f.done:])
		if err != nil || n == 0 {
			return err
		}
		f.header = false
		f.buf = append(f.buf[:f.done], f.buf[f.done+n:]...)
	}
	if f.decoder != nil {
		pending := f.buf
		f.buf = f.buf[:0]
		return f.columns(ctx, pending)
	}
	for f.done < len(f.buf) {
		var n int
		var err error
		if f.rows.active() {
			n, err = f.watched(f.buf[f.done:])
		} else {
			n, err = f.digest.Next(f.buf[f.done:])
		}
		if errors.Is(err, pgcopy.ErrTrailer) {
			f.trailer = true
			f.buf = f.buf[:f.done]
			return nil
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		if n < 0 {
			// Left out by the window: the following bytes move up.
			f.buf = append(f.buf[:f.done], f.buf[f.done-n:]...)
			f.piece++
			continue
		}
		f.lastAt = f.done
		f.done += n
		f.count++
		f.piece++
	}
	return nil
}

// watched adds a tuple whose key must be looked at; a negative length means that
// the tuple is left out.
func (f *filler) watched(buf []byte) (int, error) {
	n, err := pgcopy.TupleLen(buf, f.rows.width)
	if n == 0 || err != nil {
		return n, err
	}
	skip, err := f.watch(buf[:n])
	if err != nil {
		return 0, err
	}
	if skip {
		return -n, nil
	}
	return n, f.digest.Tuple(buf[:n])
}

func (f *filler) watch(tuple []byte) (skip bool, err error) {
	id, skip, err := f.rows.look(tuple)
	if err != nil {
		return false, err
	}
	if f.keep {
		f.seen = append(f.seen, id)
	}
	if skip {
		f.skipped++
	}
	return skip, nil
}

// columns decodes the tuples of msg; a rest that is incomplete is kept.
func (f *filler) columns(ctx context.Context, msg []byte) error {
	for len(msg) > 0 {
		n, err := pgcopy.TupleLen(msg, f.rows.width)
		if errors.Is(err, pgcopy.ErrTrailer) {
			f.trailer = true
			return nil
		}
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := f.column(ctx, msg[:n]); err != nil {
			return err
		}
		msg = msg[n:]
	}
	f.buf = append(f.buf[:0], msg...)
	if len(f.buf) == 0 && cap(f.buf) > readBuffer {
		f.buf = nil
	}
	return nil
}

func (f *filler) column(ctx context.Context, tuple []byte) error {
	f.piece++
	// Columns take at most about twice the tuple: offsets and validity on top of
	// the values, and doubling buffers.
	if f.decoder.Bytes()+2*int64(len(tuple)) > f.reserved {
		if err := f.open(ctx, max(f.size, 2*int64(len(tuple)))); err != nil {
			return err
		}
	}
	// After the batch before is out, so that the row's hash goes with the row.
	if f.rows.active() {
		if skip, err := f.watch(tuple); err != nil || skip {
			return err
		}
	}
	if err := f.digest.Tuple(tuple); err != nil {
		return err
	}
	if err := f.decoder.Append(tuple); err != nil {
		var misfit *pgcopy.RowError
		if errors.As(err, &misfit) {
			return &engine.Error{Class: engine.Permanent, Err: misfit.ValueError(f.res, f.rows.keyText(tuple))}
		}
		return err
	}
	f.count++
	return f.rows.note(tuple)
}

// scratch makes place for a message that is larger than the socket's buffer, to
// be decoded from there. Its memory is counted until it is given back.
func (f *filler) scratch(ctx context.Context, n int) ([]byte, error) {
	// The message itself and the columns of it.
	if err := f.open(ctx, 3*int64(n)); err != nil {
		return nil, err
	}
	have := len(f.buf)
	f.buf = append(make([]byte, 0, have+n), f.buf...)[:have+n]
	return f.buf[have:], nil
}

// flush writes the batch, if there is one, and hands its memory over.
func (f *filler) flush(ctx context.Context) error {
	if f.count == 0 && f.skipped == 0 && len(f.seen) == 0 {
		f.giveBack()
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b := &engine.Batch{Resource: f.res, Seq: f.seq, Rows: f.count, Skipped: f.skipped, Policies: f.policies, Seen: f.seen}
	b.Digest, _ = f.digest.Take()
	// The key is taken before the batch, whose memory the engine may use again as
	// soon as it has it.
	var key []keyValue
	var err error
	if f.decoder != nil {
		if key, err = f.rows.noted(); err != nil {
			return err
		}
		b.Bytes = min(f.decoder.Bytes(), f.reserved)
		b.Record = f.decoder.Take()
		b.CRC = integrity.RecordCRC(b.Record)
	} else {
		buf := f.buf[:f.done]
		if f.count > 0 {
			if key, err = f.rows.key(buf[f.lastAt:]); err != nil {
				return err
			}
		}
		b.Bytes, b.Wire, b.CRC = int64(f.done), buf, integrity.CRC(0, buf)
		b.Free = func() { f.bufs.put(buf) }
		f.buf, f.done, f.lastAt = nil, 0, 0
	}
	f.out.Unreserve(f.reserved - b.Bytes)
	count := f.count
	f.reserved, f.count, f.skipped, f.policies, f.seen = 0, 0, 0, nil, nil
	f.seq++
	if err := f.out.Write(ctx, b); err != nil {
		return err
	}
	if count == 0 {
		return nil
	}
	return f.wrote(ctx, key)
}

// giveBack returns a reservation that no batch took.
func (f *filler) giveBack() {
	if f.reserved > 0 {
		f.out.Unreserve(f.reserved)
		f.reserved = 0
	}
	if f.buf != nil && f.decoder == nil {
		f.bufs.put(f.buf)
		f.buf, f.done = nil, 0
	}
}

// close releases everything after an error or at the end.
func (f *filler) close() {
	f.giveBack()
	if f.decoder != nil {
		f.decoder.Release()
	}
}
