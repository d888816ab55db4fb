package integrity

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// RecordCRC returns the CRC32C of a record as it lies in memory: for each
// column, depth first, a mark of whether it has NULLs, the validity bits, the
// offsets counted from the first value, and the values. Only what the record
// shows is read, so a slice and a copy of it have the same CRC, wherever they
// begin in their buffers. It is for one process: byte order is the machine's,
// and bytes under a NULL count.
func RecordCRC(rec arrow.RecordBatch) uint32 {
	s := crcSum{}
	s.int(int(rec.NumRows()))
	for i := range int(rec.NumCols()) {
		s.data(rec.Column(i).Data(), 0, int(rec.NumRows()))
	}
	return s.crc
}

// crcSum sums data; buf is for what has to be moved first.
type crcSum struct {
	crc uint32
	buf []byte
}

func (s *crcSum) bytes(b []byte) { s.crc = CRC(s.crc, b) }

func (s *crcSum) int(n int) {
	s.buf = binary.LittleEndian.AppendUint64(s.buf[:0], uint64(n))
	s.bytes(s.buf)
}

// data sums the values [from, from+n) of d, counted from d's own offset.
func (s *crcSum) data(d arrow.ArrayData, from, n int) {
	at := d.Offset() + from
	buffers := d.Buffers()
	if d.NullN() != 0 && len(buffers) > 0 && buffers[0] != nil && bitutil.CountSetBits(buffers[0].Bytes(), at, n) < n {
		s.int(1)
		s.bits(buffers[0].Bytes(), at, n)
	} else {
		s.int(0)
	}
	switch t := d.DataType().(type) {
	case *arrow.StructType:
		for _, child := range d.Children() {
			s.data(child, at, n)
		}
	case *arrow.ListType:
		first, last := s.offsets(buffers[1].Bytes(), at, n)
		s.data(d.Children()[0], first, last-first)
	case *arrow.StringType, *arrow.BinaryType:
		if buffers[1] == nil {
			return
		}
		first, last := s.offsets(buffers[1].Bytes(), at, n)
		if last > first {
			s.bytes(buffers[2].Bytes()[first:last])
		}
	case *arrow.BooleanType:
		if n > 0 {
			s.bits(buffers[1].Bytes(), at, n)
		}
	case arrow.FixedWidthDataType:
		w := t.Bytes()
		if n > 0 {
			s.bytes(buffers[1].Bytes()[at*w : (at+n)*w])
		}
	}
}

// bits sums n bits from the one at on, the last byte filled with zeros.
func (s *crcSum) bits(b []byte, at, n int) {
	if at%8 == 0 && n%8 == 0 {
		s.bytes(b[at/8 : (at+n)/8])
		return
	}
	size := (n + 7) / 8
	s.buf = append(s.buf[:0], make([]byte, size)...)
	bitutil.CopyBitmap(b, at, n, s.buf, 0)
	s.bytes(s.buf)
}

// offsets sums n+1 int32 offsets from the one at on, counted from the first of
// them, and returns the first and the last.
func (s *crcSum) offsets(b []byte, at, n int) (first, last int) {
	if n == 0 {
		return 0, 0
	}
	b = b[at*4 : (at+n+1)*4]
	base := binary.NativeEndian.Uint32(b)
	last = int(binary.NativeEndian.Uint32(b[n*4:]))
	if base == 0 {
		s.bytes(b)
		return 0, last
	}
	for len(b) > 0 {
		piece := b[:min(len(b), 4096)]
		s.buf = s.buf[:0]
		for i := 0; i < len(piece); i += 4 {
			s.buf = binary.NativeEndian.AppendUint32(s.buf, binary.NativeEndian.Uint32(piece[i:])-base)
		}
		s.bytes(s.buf)
		b = b[len(piece):]
	}
	return int(base), last
}
