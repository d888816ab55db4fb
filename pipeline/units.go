package pipeline

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written "256MiB", "1.5GB" or as a plain number.
type Size int64

var sizePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)$`)

// ParseSize reads a size: a number and B, kB, MB, GB, TB (powers of 1000) or
// KiB, MiB, GiB, TiB (powers of 1024); letter case does not matter.
func ParseSize(s string) (Size, error) {
	m := sizePattern.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, fmt.Errorf("%q is not a size such as 256MiB", s)
	}
	factor := 1.0
	switch strings.ToLower(m[2]) {
	case "", "b":
	case "kb":
		factor = 1e3
	case "mb":
		factor = 1e6
	case "gb":
		factor = 1e9
	case "tb":
		factor = 1e12
	case "k", "ki", "kib":
		factor = 1 << 10
	case "m", "mi", "mib":
		factor = 1 << 20
	case "g", "gi", "gib":
		factor = 1 << 30
	case "t", "ti", "tib":
		factor = 1 << 40
	default:
		return 0, fmt.Errorf("%q has an unknown unit: use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB", s)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil || n*factor >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large for a size", s)
	}
	return Size(n * factor), nil
}

// String writes the size with the largest unit that leaves a whole number.
func (s Size) String() string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	n, u := int64(s), 0
	for n != 0 && n%1024 == 0 && u < len(units)-1 {
		n, u = n/1024, u+1
	}
	if u == 0 {
		return strconv.FormatInt(n, 10)
	}
	return strconv.FormatInt(n, 10) + units[u]
}

// MarshalText implements encoding.TextMarshaler.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(b []byte) error {
	v, err := ParseSize(string(b))
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// Duration is a span of time, written "5m", "1h30m", "250ms" or "2d".
type Duration time.Duration

var daysPattern = regexp.MustCompile(`^([0-9]+)d(.*)$`)

// ParseDuration reads a duration as Go does, and days ("2d", "1d12h") of 24 hours.
// A duration is never negative.
func ParseDuration(s string) (Duration, error) {
	text := strings.TrimSpace(s)
	var days time.Duration
	if m := daysPattern.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil || n > 36500 {
			return 0, fmt.Errorf("%q is too long for a duration", s)
		}
		days, text = time.Duration(n)*24*time.Hour, m[2]
		if text == "" {
			return Duration(days), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 5m, 90s or 2d", s)
	}
	if d < 0 || days+d < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	return Duration(days + d), nil
}

// String writes the duration in the shortest form that ParseDuration reads.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	if err != nil {
		return err
	}
	*d = v
	return nil
}
