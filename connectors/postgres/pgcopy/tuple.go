package pgcopy

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/tranship-io/tranship/engine"
)

const (
	// HeaderLen is the length of the header that AppendHeader writes.
	HeaderLen = 19
	signature = "PGCOPY\n\xff\r\n\x00"
	// maxTuple bounds a tuple: PostgreSQL holds no value of 1 GiB or more, and a
	// server builds each message in one buffer of at most that size.
	maxTuple = 1 << 30
)

// ErrTrailer is returned by TupleLen at the end marker of a stream.
var ErrTrailer = errors.New("end of copy data")

// AppendHeader appends the header of a binary COPY stream.
func AppendHeader(dst []byte) []byte {
	dst = append(dst, signature...)
	return append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
}

// AppendTrailer appends the end marker of a binary COPY stream.
func AppendTrailer(dst []byte) []byte { return append(dst, 0xff, 0xff) }

// ParseHeader returns the length of the header at the start of buf, 0 if it is
// not complete yet. A stream that is no binary COPY gives an error.
func ParseHeader(buf []byte) (int, error) {
	sig := buf[:min(len(buf), len(signature))]
	if !bytes.Equal(sig, []byte(signature)[:len(sig)]) {
		return 0, engine.Bugf("read copy header: %q is no binary COPY signature", sig)
	}
	if len(buf) < HeaderLen {
		return 0, nil
	}
	flags := binary.BigEndian.Uint32(buf[11:])
	if flags&0xffff0000 != 0 {
		return 0, engine.Bugf("read copy header: critical flags %#x are not known", flags)
	}
	ext := int(binary.BigEndian.Uint32(buf[15:]))
	if ext > maxTuple {
		return 0, engine.Bugf("read copy header: extension of %d bytes", ext)
	}
	if len(buf) < HeaderLen+ext {
		return 0, nil
	}
	return HeaderLen + ext, nil
}

// TupleLen returns the length of the tuple at the start of buf, which must have
// the number of fields; 0 if it is not complete; ErrTrailer at the end marker.
// Lengths below -1, a tuple of 1 GiB, and another number of fields are errors.
func TupleLen(buf []byte, fields int) (int, error) {
	if len(buf) < 2 {
		return 0, nil
	}
	if n := int(int16(binary.BigEndian.Uint16(buf))); n != fields {
		return 0, countError(n, fields)
	}
	rest := buf[2:]
	for range fields {
		if len(rest) < 4 {
			return 0, nil
		}
		n := int(int32(binary.BigEndian.Uint32(rest)))
		rest = rest[4:]
		switch {
		case uint(n) <= uint(len(rest)):
			rest = rest[n:]
		case n == -1:
		case n < 0:
			return 0, lengthError(n)
		case len(buf)-len(rest)+n > maxTuple:
			return 0, sizeError(n)
		default:
			return 0, nil
		}
	}
	n := len(buf) - len(rest)
	if n > maxTuple {
		return 0, sizeError(n)
	}
	return n, nil
}

func countError(n, fields int) error {
	if n == -1 {
		return ErrTrailer
	}
	return engine.Bugf("read copy tuple: it has %d fields, expected %d", n, fields)
}

func lengthError(n int) error {
	return engine.Bugf("read copy tuple: a field has length %d", n)
}

// SplitTuple appends the fields of a complete tuple to dst; a NULL is nil, an
// empty value is not. The fields are borrowed from the tuple.
func SplitTuple(tuple []byte, dst [][]byte) ([][]byte, error) {
	if len(tuple) < 2 {
		return dst, errShort()
	}
	n := int(int16(binary.BigEndian.Uint16(tuple)))
	pos := 2
	for range n {
		field, next, err := fieldAt(tuple, pos)
		if err != nil {
			return dst, err
		}
		dst, pos = append(dst, field), next
	}
	if n < 0 || pos != len(tuple) {
		return dst, engine.Bugf("split copy tuple: %d bytes after %d fields", len(tuple)-pos, n)
	}
	return dst, nil
}

// fieldAt returns the field at pos, nil for NULL, and the position after it.
func fieldAt(tuple []byte, pos int) (field []byte, next int, err error) {
	if len(tuple)-pos < 4 {
		return nil, 0, errShort()
	}
	n := int(int32(binary.BigEndian.Uint32(tuple[pos:])))
	pos += 4
	if n < 0 {
		if n != -1 {
			return nil, 0, lengthError(n)
		}
		return nil, pos, nil
	}
	if n > len(tuple)-pos {
		return nil, 0, errShort()
	}
	return tuple[pos : pos+n : pos+n], pos + n, nil
}

func errShort() error { return engine.Bugf("read copy tuple: it ends within a field") }

// Scanner cuts a binary COPY stream into tuples, whatever pieces it comes in.
type Scanner struct {
	fields int
	header bool
	done   bool
	carry  []byte
}

// NewScanner makes a scanner for a stream, header included, of tuples with the
// number of fields.
func NewScanner(fields int) *Scanner { return &Scanner{fields: fields, header: true} }

// Scan takes the next piece of the stream and calls tuple for each complete
// tuple in it; the slice is valid during the call only and not to be appended to.
// An error of tuple ends
// the scan and is returned as it is.
func (s *Scanner) Scan(piece []byte, tuple func([]byte) error) error {
	buf := piece
	if len(s.carry) > 0 {
		s.carry = append(s.carry, piece...)
		buf = s.carry
	}
	rest, err := s.scan(buf, tuple)
	if err != nil {
		return err
	}
	// A tuple that came in pieces is moved to the front; append handles the
	// overlap, and the memory is kept for the next one.
	if len(rest) == 0 {
		s.carry = keep(s.carry)
	}
	s.carry = append(s.carry[:0], rest...)
	return nil
}

func (s *Scanner) scan(buf []byte, tuple func([]byte) error) ([]byte, error) {
	if s.header {
		n, err := ParseHeader(buf)
		if n == 0 || err != nil {
			return buf, err
		}
		s.header, buf = false, buf[n:]
	}
	for len(buf) > 0 {
		if s.done {
			return nil, engine.Bugf("read copy data: %d bytes after its end marker", len(buf))
		}
		n, err := TupleLen(buf, s.fields)
		if err != nil {
			if !errors.Is(err, ErrTrailer) {
				return nil, err
			}
			s.done, buf = true, buf[2:]
			continue
		}
		if n == 0 {
			return buf, nil
		}
		if err := tuple(buf[:n]); err != nil {
			return nil, err
		}
		buf = buf[n:]
	}
	return nil, nil
}

// Pending is the number of bytes held of a tuple that is not complete.
func (s *Scanner) Pending() int { return len(s.carry) }

// Close tells whether the stream ended as it must, with its end marker: one that
// breaks off is no end (retryable: the connection was lost).
func (s *Scanner) Close() error {
	if !s.done || len(s.carry) > 0 {
		return engine.Retryablef("read copy data: it ends without its end marker, after %d bytes of a tuple", len(s.carry))
	}
	return nil
}
