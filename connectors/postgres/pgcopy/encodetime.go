package pgcopy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// PostgreSQL's ranges, in its own counting: from 4714-11-24 BC on, before
// 294277-01-01 (timestamps) and 5874898-01-01 (dates).
const (
	minTimestamp int64 = -211813488000000000
	endTimestamp int64 = 9223371331200000000
	minDate      int32 = -2451545
	endDate      int32 = 2145031949
	dayMicros    int64 = 86400 * 1_000_000
)

// checkTime tells why a date, time, timestamp or interval does not fit. The
// plain payload is PostgreSQL's own but for ns, which make it longer.
func (p *encodePlan) checkTime(v []byte) *unfit {
	switch p.typ.Kind {
	case schema.Date:
		d := int32(binary.BigEndian.Uint32(v))
		if d != math.MaxInt32 && d != math.MinInt32 && (d < minDate || d >= endDate) {
			return misfitf(true, string(appendDate(nil, d)), "it is beyond the dates of PostgreSQL")
		}
		return nil
	case schema.Interval:
		if len(v) != 16 {
			return misfitf(true, string(appendInterval(nil, v)), "PostgreSQL keeps microseconds only")
		}
		if infinite := v[0] == 0x7f || v[0] == 0x80; infinite && p.major < 17 && isInfiniteInterval(v) {
			return misfitf(false, string(appendInterval(nil, v)), "intervals have no infinity before PostgreSQL 17")
		}
		if step := p.step(); step > 1 && int64(binary.BigEndian.Uint64(v))%step != 0 {
			return misfitf(true, string(appendInterval(nil, v)), "it has more fractional digits than the column keeps")
		}
		return nil
	}
	if len(v) != 8 {
		return misfitf(true, string(p.timeText(v)), "PostgreSQL keeps microseconds only")
	}
	t := int64(binary.BigEndian.Uint64(v))
	switch {
	case p.typ.Kind == schema.Time:
		if t < 0 || t > dayMicros {
			return misfitf(true, fmt.Sprintf("%d µs", t), "it is beyond the hours of a day")
		}
	case t == math.MaxInt64, t == math.MinInt64:
		return nil
	case t < minTimestamp, t >= endTimestamp:
		return misfitf(true, string(p.timeText(v)), "it is beyond the timestamps of PostgreSQL")
	}
	if step := p.step(); step > 1 && t%step != 0 {
		return misfitf(true, string(p.timeText(v)), "it has more fractional digits than the column keeps")
	}
	return nil
}

// step returns the µs that the column's modifier rounds to.
func (p *encodePlan) step() int64 {
	m := p.shape.typmod
	if p.shape.oid == OIDInterval && m >= 0 {
		m &= 0xffff
	}
	if m < 0 || m >= 6 {
		return 1
	}
	s := int64(1)
	for range 6 - m {
		s *= 10
	}
	return s
}

func isInfiniteInterval(v []byte) bool {
	micros := int64(binary.BigEndian.Uint64(v))
	days, months := int32(binary.BigEndian.Uint32(v[8:])), int32(binary.BigEndian.Uint32(v[12:]))
	return micros == math.MaxInt64 && days == math.MaxInt32 && months == math.MaxInt32 ||
		micros == math.MinInt64 && days == math.MinInt32 && months == math.MinInt32
}

// clampTime appends the nearest value that fits: rounded to what the column
// keeps, half up, within PostgreSQL's range.
func (p *encodePlan) clampTime(dst, v []byte) []byte {
	if p.typ.Kind == schema.Date {
		d := int32(binary.BigEndian.Uint32(v))
		return integrity.AppendDays(dst, min(max(d, minDate), endDate-1))
	}
	t := int64(binary.BigEndian.Uint64(v))
	var rest []byte
	var nanos int64
	switch p.typ.Kind {
	case schema.Interval:
		rest = v[len(v)-8:]
		if len(v) == 18 {
			nanos = int64(binary.BigEndian.Uint16(v[8:]))
		}
	default:
		if len(v) == 10 {
			nanos = int64(binary.BigEndian.Uint16(v[8:]))
		}
	}
	step := p.step()
	// Rounding may step over the end of the range, so it comes first.
	down := ((t % step) + step) % step
	t -= down
	if 2*(down*1000+nanos) >= step*1000 {
		t += step
	}
	switch p.typ.Kind {
	case schema.Time:
		t = min(max(t, 0), dayMicros)
	case schema.Interval:
		days, months := int32(binary.BigEndian.Uint32(rest)), int32(binary.BigEndian.Uint32(rest[4:]))
		return integrity.AppendInterval(dst, months, days, t, 0)
	default:
		t = min(max(t, minTimestamp), endTimestamp-step)
	}
	return integrity.AppendMicros(dst, t, 0)
}

func (p *encodePlan) timeText(v []byte) []byte {
	if p.typ.Kind == schema.Time {
		return appendTime(nil, v)
	}
	return appendTimestamp(nil, v, p.typ.Kind == schema.TimestampTZ)
}

// The text forms below are read by PostgreSQL under every DateStyle and
// IntervalStyle.

func appendDate(dst []byte, d int32) []byte {
	switch d {
	case math.MaxInt32:
		return append(dst, "infinity"...)
	case math.MinInt32:
		return append(dst, "-infinity"...)
	}
	dst, bc := appendDay(dst, int64(d))
	if bc {
		dst = append(dst, " BC"...)
	}
	return dst
}

// appendDay appends the day as year-month-day and tells whether it is BC.
func appendDay(dst []byte, days int64) (out []byte, bc bool) {
	y, m, d := time.Unix((days+epochDays)*86400, 0).UTC().Date()
	if y <= 0 {
		y, bc = 1-y, true
	}
	return fmt.Appendf(dst, "%04d-%02d-%02d", y, m, d), bc
}

// appendClock appends hours, which may exceed a day's, minutes and seconds with
// up to nine digits.
func appendClock(dst []byte, micros uint64, nanos uint16) []byte {
	s := micros / 1_000_000
	dst = fmt.Appendf(dst, "%02d:%02d:%02d", s/3600, s/60%60, s%60)
	if frac := micros%1_000_000*1000 + uint64(nanos); frac != 0 {
		dst = bytes.TrimRight(fmt.Appendf(dst, ".%09d", frac), "0")
	}
	return dst
}

func nanosOf(v []byte) uint16 {
	if len(v) == 10 {
		return binary.BigEndian.Uint16(v[8:])
	}
	return 0
}

func appendTime(dst, v []byte) []byte {
	return appendClock(dst, binary.BigEndian.Uint64(v), nanosOf(v))
}

func appendTimestamp(dst, v []byte, zone bool) []byte {
	t := int64(binary.BigEndian.Uint64(v))
	switch {
	case t == math.MaxInt64 && len(v) == 8:
		return append(dst, "infinity"...)
	case t == math.MinInt64 && len(v) == 8:
		return append(dst, "-infinity"...)
	}
	day := t / dayMicros
	rest := t % dayMicros
	if rest < 0 {
		day--
		rest += dayMicros
	}
	dst, bc := appendDay(dst, day)
	dst = appendClock(append(dst, ' '), uint64(rest), nanosOf(v))
	if zone {
		dst = append(dst, "+00"...)
	}
	if bc {
		dst = append(dst, " BC"...)
	}
	return dst
}

func appendInterval(dst, v []byte) []byte {
	if len(v) == 16 && isInfiniteInterval(v) {
		if v[0] == 0x80 {
			dst = append(dst, '-')
		}
		return append(dst, "infinity"...)
	}
	micros := int64(binary.BigEndian.Uint64(v))
	var nanos uint16
	if len(v) == 18 {
		nanos = binary.BigEndian.Uint16(v[8:])
	}
	rest := v[len(v)-8:]
	dst = fmt.Appendf(dst, "%d mons %d days ", int32(binary.BigEndian.Uint32(rest[4:])), int32(binary.BigEndian.Uint32(rest)))
	if micros >= 0 {
		return appendClock(dst, uint64(micros), nanos)
	}
	// The ns count up from the µs below.
	if nanos != 0 {
		micros, nanos = micros+1, 1000-nanos
	}
	return appendClock(append(dst, '-'), -uint64(micros), nanos)
}
