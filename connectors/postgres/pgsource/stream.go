package pgsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

// readBuffer is what one read from the socket may return: large enough that the
// system call costs little per row, small beside a batch.
const readBuffer = 256 << 10

// stream speaks the protocol on a connection that was taken out of pgconn: COPY
// data messages, one a row, are walked in one large buffer without a call or an
// allocation for each.
type stream struct {
	conn   net.Conn
	gather *gatherer
	stall  time.Duration
	buf    []byte
	r, w   int
	// pending counts queries that were sent and not answered to their end; inside is
	// true in the middle of a message.
	pending int
	inside  bool
	// copying is true while rows come.
	copying bool
}

func newStream(conn net.Conn, stall time.Duration) *stream {
	return &stream{conn: conn, gather: newGatherer(conn), stall: stall, buf: make([]byte, readBuffer)}
}

// send sends a simple query and does not wait: the server works on queries in
// their order, so the next one can be on its way while rows still come.
func (s *stream) send(sql string) error {
	msg := make([]byte, 0, len(sql)+6)
	msg = append(msg, 'Q')
	msg = binary.BigEndian.AppendUint32(msg, uint32(len(sql)+5))
	msg = append(append(msg, sql...), 0)
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
		return err
	}
	s.pending++
	_, err := s.conn.Write(msg)
	return err
}

// fill reads until n unread bytes are in the buffer; n is at most readBuffer.
func (s *stream) fill(ctx context.Context, n int) error {
	if s.r == s.w {
		s.r, s.w = 0, 0
	}
	if len(s.buf)-s.r < n {
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
	}
	for s.w-s.r < n {
		got, err := s.read(ctx, s.buf[s.w:])
		s.w += got
		if err != nil {
			return err
		}
	}
	return nil
}

// read reads once. A server that sends nothing for too long is an error: it may
// hang, or the network lost it without a word.
func (s *stream) read(ctx context.Context, dst []byte) (int, error) {
	wait := s.stall
	if s.gather.on {
		wait = min(wait, gatherTime)
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return 0, err
	}
	// A cancellation sets a deadline in the past; one that came just before the
	// line above is seen here.
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	n, err := s.conn.Read(dst)
	if err == nil || n > 0 {
		// Worth while only as long as rows come by the buffer.
		s.gather.set(s.copying && n >= gatherBytes/8)
		return n, nil
	}
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case s.gather.on && errors.Is(err, os.ErrDeadlineExceeded):
		s.gather.set(false)
		return s.read(ctx, dst)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, &engine.Error{Class: engine.Retryable, Hint: "is the server overloaded, or does a filter or view compute for long? then raise stall_timeout",
			Err: fmt.Errorf("the server sent nothing for %s", s.stall)}
	case errors.Is(err, io.EOF):
		return 0, engine.Retryablef("the server closed the connection: %w", io.ErrUnexpectedEOF)
	}
	return 0, err
}

// readFull reads dst full, from the buffer first.
func (s *stream) readFull(ctx context.Context, dst []byte) error {
	n := copy(dst, s.buf[s.r:s.w])
	s.r += n
	for n < len(dst) {
		got, err := s.read(ctx, dst[n:])
		n += got
		if err != nil {
			return err
		}
	}
	return nil
}

// copySink takes the messages of a COPY.
type copySink interface {
	// data takes a message that is in the buffer; it is valid during the call.
	data(ctx context.Context, msg []byte) error
	// room returns where to put a message of n bytes that is larger than the
	// buffer; placed is called when it is there.
	room(ctx context.Context, n int) ([]byte, error)
	placed(ctx context.Context) error
}

// copyOut receives the answer to one COPY … TO STDOUT up to the server's being
// ready again, and returns how many rows the server says that it sent.
func (s *stream) copyOut(ctx context.Context, sink copySink) (int64, error) {
	rows := int64(-1)
	var failed error
	for {
		if s.w-s.r < 5 {
			if err := s.fill(ctx, 5); err != nil {
				return 0, err
			}
		}
		kind := s.buf[s.r]
		n := int(int32(binary.BigEndian.Uint32(s.buf[s.r+1:]))) - 4
		if n < 0 {
			return 0, engine.Retryablef("the server sent a message of impossible length")
		}
		s.r += 5
		if n > len(s.buf) {
			if kind != 'd' {
				return 0, engine.Retryablef("the server sent a message of %d bytes of kind %q", n, kind)
			}
			s.inside = true
			dst, err := sink.room(ctx, n)
			if err != nil {
				return 0, err
			}
			if err := s.readFull(ctx, dst); err != nil {
				return 0, err
			}
			s.inside = false
			if err := sink.placed(ctx); err != nil {
				return 0, err
			}
			continue
		}
		if s.w-s.r < n {
			if err := s.fill(ctx, n); err != nil {
				return 0, err
			}
		}
		msg := s.buf[s.r : s.r+n]
		s.r += n
		switch kind {
		case 'H':
			s.copying = true
		case 'c':
			s.copying = false
		case 'd':
			if err := sink.data(ctx, msg); err != nil {
				return 0, err
			}
		case 'E':
			var e pgproto3.ErrorResponse
			if err := e.Decode(msg); err != nil {
				return 0, engine.Retryablef("read the server's error: %w", err)
			}
			failed = pgconf.Classify(pgconn.ErrorResponseToPgError(&e))
			if pgconf.IsFatal(failed) {
				return 0, failed
			}
		case 'C':
			tag := strings.TrimRight(string(msg), "\x00")
			if count, ok := strings.CutPrefix(tag, "COPY "); ok {
				rows, _ = strconv.ParseInt(count, 10, 64) // a tag without a number leaves 0, which the caller compares
			}
		case 'Z':
			s.pending--
			return rows, failed
		}
		// CopyOutResponse, CopyDone, notices and parameters mean nothing here.
	}
}

// nowhere is where the rest of a copy goes that nobody wants any more.
type nowhere struct{ buf []byte }

func (*nowhere) data(context.Context, []byte) error { return nil }

func (n *nowhere) room(_ context.Context, size int) ([]byte, error) {
	if cap(n.buf) < size {
		n.buf = make([]byte, size)
	}
	return n.buf[:size], nil
}

func (*nowhere) placed(context.Context) error { return nil }

// drain receives what is left of canceled queries; the connection is of use again
// when it returns nil.
func (s *stream) drain(ctx context.Context) error {
	if s.inside {
		return errors.New("stopped in the middle of a message")
	}
	for s.pending > 0 {
		before := s.pending
		if _, err := s.copyOut(ctx, &nowhere{}); err != nil && s.pending == before {
			return err
		}
	}
	return nil
}
