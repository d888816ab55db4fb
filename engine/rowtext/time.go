package rowtext

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/tranship-io/tranship/engine/schema"
)

const (
	textPosInf = "infinity"
	textNegInf = "-infinity"

	SecondsPerDay = 86400
)

// civil returns year, month and day of a day number from 1970-01-01 in the
// proleptic Gregorian calendar; year 0 is 1 BC. It counts in eras of 400 years
// that begin on 1 March.
func civil(days int64) (year int64, month, day int) {
	z := days + 719468
	era := z / 146097
	if z < 0 {
		era = (z - 146096) / 146097
	}
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = int(doy - (153*mp+2)/5 + 1)
	month = int(mp) + 3
	if month > 12 {
		month -= 12
	}
	year = yoe + era*400
	if month <= 2 {
		year++
	}
	return year, month, day
}

// DayNumber is the reverse of civil.
func DayNumber(year int64, month, day int) int64 {
	if month <= 2 {
		year--
	}
	era := year / 400
	if year < 0 {
		era = (year - 399) / 400
	}
	yoe := year - era*400
	mp := int64(month+9) % 12
	doy := (153*mp+2)/5 + int64(day) - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

func appendPadded(dst []byte, v int64, width int) []byte {
	var buf [20]byte
	s := strconv.AppendInt(buf[:0], v, 10)
	for range width - len(s) {
		dst = append(dst, '0')
	}
	return append(dst, s...)
}

func appendDays(dst []byte, days int64) []byte {
	y, m, d := civil(days)
	switch {
	case y < 0:
		dst, y = append(dst, '-'), -y
	case y > 9999:
		dst = append(dst, '+')
	}
	dst = append(appendPadded(dst, y, 4), '-')
	dst = append(appendPadded(dst, int64(m), 2), '-')
	return appendPadded(dst, int64(d), 2)
}

func appendDate(dst []byte, v int32) []byte {
	switch v {
	case schema.DatePosInf:
		return append(dst, textPosInf...)
	case schema.DateNegInf:
		return append(dst, textNegInf...)
	}
	return appendDays(dst, int64(v))
}

// PerSecond returns the units of a second and the digits of its fraction.
func PerSecond(nanos bool) (int64, int) {
	if nanos {
		return 1e9, 9
	}
	return 1e6, 6
}

// appendTime writes a time of day; 24:00:00 is one.
func appendTime(dst []byte, v int64, nanos bool) []byte {
	unit, digits := PerSecond(nanos)
	sec, frac := v/unit, v%unit
	dst = append(appendPadded(dst, sec/3600, 2), ':')
	dst = append(appendPadded(dst, sec/60%60, 2), ':')
	dst = appendPadded(dst, sec%60, 2)
	if frac != 0 {
		dst = appendPadded(append(dst, '.'), frac, digits)
	}
	return dst
}

func appendTimestamp(dst []byte, v int64, nanos, zone bool) []byte {
	switch v {
	case schema.TimestampPosInf:
		return append(dst, textPosInf...)
	case schema.TimestampNegInf:
		return append(dst, textNegInf...)
	}
	unit, _ := PerSecond(nanos)
	perDay := unit * SecondsPerDay
	days, rest := v/perDay, v%perDay
	if rest < 0 {
		days, rest = days-1, rest+perDay
	}
	dst = append(appendDays(dst, days), 'T')
	dst = appendTime(dst, rest, nanos)
	if zone {
		dst = append(dst, 'Z')
	}
	return dst
}

// appendInterval writes months, days and time as an ISO 8601 duration, each
// part with its own sign: they don't mix.
func appendInterval(dst []byte, v arrow.MonthDayNanoInterval) []byte {
	dst = append(dst, 'P')
	part := func(n int64, letter byte) {
		if n != 0 {
			dst = append(strconv.AppendInt(dst, n, 10), letter)
		}
	}
	part(int64(v.Months)/12, 'Y')
	part(int64(v.Months)%12, 'M')
	part(int64(v.Days), 'D')
	if v.Nanoseconds == 0 {
		if len(dst) > 0 && dst[len(dst)-1] == 'P' {
			dst = append(dst, 'T', '0', 'S')
		}
		return dst
	}
	dst = append(dst, 'T')
	sec, frac := v.Nanoseconds/1e9, v.Nanoseconds%1e9
	part(sec/3600, 'H')
	part(sec/60%60, 'M')
	if s := sec % 60; s != 0 || frac != 0 {
		if s < 0 || frac < 0 {
			dst, s, frac = append(dst, '-'), -s, -frac
		}
		dst = strconv.AppendInt(dst, s, 10)
		if frac != 0 {
			dst = appendPadded(append(dst, '.'), frac, 9)
			for dst[len(dst)-1] == '0' {
				dst = dst[:len(dst)-1]
			}
		}
		dst = append(dst, 'S')
	}
	return dst
}

// parseDays reads a date with an optional sign and four or more year digits.
func parseDays(s string) (int64, error) {
	sign, rest := int64(1), s
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		if rest[0] == '-' {
			sign = -1
		}
		rest = rest[1:]
	}
	parts := strings.Split(rest, "-")
	if len(parts) != 3 || len(parts[0]) < 4 || len(parts[1]) != 2 || len(parts[2]) != 2 {
		return 0, fmt.Errorf("read date %q", s)
	}
	y, err1 := strconv.ParseUint(parts[0], 10, 32)
	m, err2 := strconv.ParseUint(parts[1], 10, 8)
	d, err3 := strconv.ParseUint(parts[2], 10, 8)
	if err := errors.Join(err1, err2, err3); err != nil || m < 1 || m > 12 || d < 1 || d > 31 {
		return 0, fmt.Errorf("read date %q", s)
	}
	days := DayNumber(sign*int64(y), int(m), int(d))
	if cy, cm, cd := civil(days); cy != sign*int64(y) || cm != int(m) || cd != int(d) {
		return 0, fmt.Errorf("read date %q: there is no such day", s)
	}
	return days, nil
}

func parseDate(s string) (int32, error) {
	switch s {
	case textPosInf:
		return schema.DatePosInf, nil
	case textNegInf:
		return schema.DateNegInf, nil
	}
	days, err := parseDays(s)
	if err == nil && (days < math.MinInt32 || days > math.MaxInt32) {
		err = fmt.Errorf("read date %q: out of range", s)
	}
	return int32(days), err
}

func parseTime(s string, nanos bool) (int64, error) {
	unit, digits := PerSecond(nanos)
	bad := fmt.Errorf("read time %q", s)
	if len(s) < 8 || s[2] != ':' || s[5] != ':' {
		return 0, bad
	}
	h, err1 := strconv.ParseUint(s[:2], 10, 8)
	m, err2 := strconv.ParseUint(s[3:5], 10, 8)
	sec, err3 := strconv.ParseUint(s[6:8], 10, 8)
	if errors.Join(err1, err2, err3) != nil || h > 24 || m > 59 || sec > 59 {
		return 0, bad
	}
	v := (int64(h)*3600 + int64(m)*60 + int64(sec)) * unit
	if len(s) > 8 {
		frac := s[9:]
		if s[8] != '.' || frac == "" || len(frac) > digits {
			return 0, bad
		}
		n, err := strconv.ParseUint(frac+strings.Repeat("0", digits-len(frac)), 10, 64)
		if err != nil {
			return 0, bad
		}
		v += int64(n)
	}
	if v > SecondsPerDay*unit {
		return 0, bad
	}
	return v, nil
}

func parseTimestamp(s string, nanos, zone bool) (int64, error) {
	switch s {
	case textPosInf:
		return schema.TimestampPosInf, nil
	case textNegInf:
		return schema.TimestampNegInf, nil
	}
	date, clock, ok := strings.Cut(s, "T")
	if zone {
		var z bool
		clock, z = strings.CutSuffix(clock, "Z")
		ok = ok && z
	}
	if !ok {
		return 0, fmt.Errorf("read timestamp %q", s)
	}
	days, err := parseDays(date)
	if err != nil {
		return 0, err
	}
	t, err := parseTime(clock, nanos)
	if err != nil {
		return 0, err
	}
	unit, _ := PerSecond(nanos)
	perDay := unit * SecondsPerDay
	// The first day that int64 holds begins before its smallest number: count
	// such days from their end.
	if days < 0 {
		days, t = days+1, t-perDay
	}
	if limit := math.MaxInt64 / perDay; days > limit || days < -limit {
		return 0, fmt.Errorf("read timestamp %q: out of range", s)
	}
	v := days*perDay + t
	if (days > 0) != (v > 0) && days != 0 {
		return 0, fmt.Errorf("read timestamp %q: out of range", s)
	}
	return v, nil
}

func parseInterval(s string) (arrow.MonthDayNanoInterval, error) {
	var v arrow.MonthDayNanoInterval
	bad := fmt.Errorf("read interval %q", s)
	rest, ok := strings.CutPrefix(s, "P")
	if !ok || rest == "" {
		return v, bad
	}
	var months, days, nanos int64
	clock := false
	for rest != "" {
		if rest[0] == 'T' && !clock {
			clock, rest = true, rest[1:]
			continue
		}
		end := strings.IndexAny(rest, "YMDHS")
		if end < 1 {
			return v, bad
		}
		number, fraction, _ := strings.Cut(rest[:end], ".")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || len(fraction) > 9 || (fraction != "" && rest[end] != 'S') {
			return v, bad
		}
		switch unit := rest[end]; {
		case unit == 'Y' && !clock:
			months += n * 12
		case unit == 'M' && !clock:
			months += n
		case unit == 'D' && !clock:
			days += n
		case unit == 'H' && clock:
			nanos += n * 3600e9
		case unit == 'M' && clock:
			nanos += n * 60e9
		case unit == 'S' && clock:
			f := int64(0)
			if fraction != "" {
				u, err := strconv.ParseUint(fraction+strings.Repeat("0", 9-len(fraction)), 10, 64)
				if err != nil {
					return v, bad
				}
				f = int64(u)
			}
			if strings.HasPrefix(number, "-") {
				f = -f
			}
			nanos += n*1e9 + f
		default:
			return v, bad
		}
		rest = rest[end+1:]
	}
	if months != int64(int32(months)) || days != int64(int32(days)) {
		return v, bad
	}
	return arrow.MonthDayNanoInterval{Months: int32(months), Days: int32(days), Nanoseconds: nanos}, nil
}
