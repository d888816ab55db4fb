package integrity

import (
	"encoding/binary"
	"math"
)

// nanBits is the one pattern that every NaN is encoded as; PostgreSQL sends it.
const nanBits = 0x7ff8000000000000

// AppendNull appends a NULL field.
func AppendNull(dst []byte) []byte { return append(dst, 0xff, 0xff, 0xff, 0xff) }

// AppendBytes appends a field of bytes or text.
func AppendBytes[T []byte | string](dst []byte, v T) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(v)))
	return append(dst, v...)
}

// AppendBool appends a bool field.
func AppendBool(dst []byte, v bool) []byte {
	b := byte(0)
	if v {
		b = 1
	}
	return append(dst, 0, 0, 0, 1, b)
}

// AppendInt appends an integer field; the bits of a uint64 count.
func AppendInt(dst []byte, v int64) []byte {
	dst = append(dst, 0, 0, 0, 8)
	return binary.BigEndian.AppendUint64(dst, uint64(v))
}

// AppendFloat appends a field of a floating-point number; float32 values are
// widened by the caller, which is exact.
func AppendFloat(dst []byte, v float64) []byte {
	b := math.Float64bits(v)
	if v != v {
		b = nanBits
	}
	dst = append(dst, 0, 0, 0, 8)
	return binary.BigEndian.AppendUint64(dst, b)
}

// AppendDays appends a date field: days since 2000-01-01, the extremes being
// ±infinity.
func AppendDays(dst []byte, days int32) []byte {
	dst = append(dst, 0, 0, 0, 4)
	return binary.BigEndian.AppendUint32(dst, uint32(days))
}

// AppendMicros appends a time or timestamp field: µs, and the ns (0–999) beyond
// them. Timestamps count from 2000-01-01; their extremes, without ns, are
// ±infinity.
func AppendMicros(dst []byte, micros int64, nanos uint16) []byte {
	if nanos == 0 {
		dst = append(dst, 0, 0, 0, 8)
		return binary.BigEndian.AppendUint64(dst, uint64(micros))
	}
	dst = append(dst, 0, 0, 0, 10)
	dst = binary.BigEndian.AppendUint64(dst, uint64(micros))
	return binary.BigEndian.AppendUint16(dst, nanos)
}

// AppendInterval appends an interval field. Its three parts don't mix.
func AppendInterval(dst []byte, months, days int32, micros int64, nanos uint16) []byte {
	n := byte(16)
	if nanos != 0 {
		n = 18
	}
	dst = append(dst, 0, 0, 0, n)
	dst = binary.BigEndian.AppendUint64(dst, uint64(micros))
	if nanos != 0 {
		dst = binary.BigEndian.AppendUint16(dst, nanos)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(days))
	return binary.BigEndian.AppendUint32(dst, uint32(months))
}

// BeginField appends room for the length of a field whose payload follows, and
// returns the place for EndField.
func BeginField(dst []byte) (buf []byte, at int) {
	return append(dst, 0, 0, 0, 0), len(dst)
}

// EndField writes the length of the field that began at the place.
func EndField(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// splitNanos cuts ns into µs, rounded down, and the ns beyond them.
func splitNanos(ns int64) (micros int64, nanos uint16) {
	micros = ns / 1000
	rest := ns % 1000
	if rest < 0 {
		rest += 1000
		micros--
	}
	return micros, uint16(rest)
}
