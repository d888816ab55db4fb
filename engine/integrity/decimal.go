package integrity

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"

	"github.com/tranship-io/tranship/engine/schema"
)

// Signs of a canonical decimal.
const (
	DecimalPositive byte = 0
	DecimalNegative byte = 1
	DecimalNaN      byte = 2
	DecimalPosInf   byte = 3
	DecimalNegInf   byte = 4
)

// AppendDecimalSpecial appends the payload of a decimal without digits: zero
// (DecimalPositive), NaN or an infinity.
func AppendDecimalSpecial(dst []byte, sign byte) []byte {
	return append(dst, sign, 0, 0, 0, 0)
}

// AppendDecimalText appends the canonical payload (no length) of a decimal
// written as text: digits with an optional point, sign and exponent, or NaN,
// Infinity, -Infinity in any case. Numbers that are equal give equal payloads.
func AppendDecimalText[T []byte | string](dst []byte, text T) ([]byte, error) {
	t := text
	neg := false
	if len(t) > 0 && (t[0] == '-' || t[0] == '+') {
		neg, t = t[0] == '-', t[1:]
	}
	if len(t) > 0 && t[0]|0x20 >= 'a' {
		return appendDecimalWord(dst, string(t), neg, len(t) != len(text), string(text))
	}
	// Find the digits, the point among them, and the exponent.
	dot, n := -1, 0
	for ; n < len(t); n++ {
		if c := t[n]; c == '.' && dot < 0 {
			dot = n
		} else if c < '0' || c > '9' {
			break
		}
	}
	digits, point := n, n
	if dot >= 0 {
		digits, point = n-1, dot
	}
	exp := 0
	if n < len(t) {
		if t[n]|0x20 != 'e' {
			return dst, fmt.Errorf("read decimal %s: %q is no digit", quote(string(text)), t[n])
		}
		var err error
		if exp, err = strconv.Atoi(string(t[n+1:])); err != nil || exp > 1<<20 || exp < -1<<20 {
			return dst, fmt.Errorf("read decimal %s: its exponent is not a number in range", quote(string(text)))
		}
	}
	if digits == 0 {
		return dst, fmt.Errorf("read decimal %s: it has no digits", quote(string(text)))
	}
	return appendGroups(dst, neg, t[:n], dot, point+exp)
}

func appendDecimalWord(dst []byte, word string, neg, signed bool, text string) ([]byte, error) {
	lower := make([]byte, 0, 8)
	for i := 0; i < len(word) && i <= 8; i++ {
		lower = append(lower, word[i]|0x20)
	}
	switch string(lower) {
	case "nan":
		if !signed {
			return AppendDecimalSpecial(dst, DecimalNaN), nil
		}
	case "inf", "infinity":
		if neg {
			return AppendDecimalSpecial(dst, DecimalNegInf), nil
		}
		return AppendDecimalSpecial(dst, DecimalPosInf), nil
	}
	return dst, fmt.Errorf("read decimal %s: it is no number", quote(text))
}

// AppendDecimal128 appends the canonical payload of an Arrow decimal, sentinels
// included.
func AppendDecimal128(dst []byte, v decimal128.Num, scale int32) ([]byte, error) {
	neg := v.HighBits() < 0
	hi, lo := uint64(v.HighBits()), v.LowBits()
	if hi+1 <= 1 && int64(lo) >= 0 == (hi == 0) {
		// It fits an int64, as nearly all do.
		if neg {
			lo = -lo
		}
		var buf [20]byte
		d := strconv.AppendUint(buf[:0], lo, 10)
		return appendGroups(dst, neg, d, -1, len(d)-int(scale))
	}
	switch v {
	case schema.DecimalNaN:
		return AppendDecimalSpecial(dst, DecimalNaN), nil
	case schema.DecimalPosInf:
		return AppendDecimalSpecial(dst, DecimalPosInf), nil
	case schema.DecimalNegInf:
		return AppendDecimalSpecial(dst, DecimalNegInf), nil
	}
	if neg {
		lo, hi = -lo, ^hi
		if lo == 0 {
			hi++
		}
	}
	return appendWords(dst, neg, [4]uint64{lo, hi}, scale)
}

// AppendDecimal256 appends the canonical payload of an Arrow decimal, sentinels
// included.
func AppendDecimal256(dst []byte, v decimal256.Num, scale int32) ([]byte, error) {
	switch v {
	case schema.Decimal256NaN:
		return AppendDecimalSpecial(dst, DecimalNaN), nil
	case schema.Decimal256PosInf:
		return AppendDecimalSpecial(dst, DecimalPosInf), nil
	case schema.Decimal256NegInf:
		return AppendDecimalSpecial(dst, DecimalNegInf), nil
	}
	neg := v.Sign() < 0
	if neg {
		v = v.Negate()
	}
	return appendWords(dst, neg, v.Array(), scale)
}

// appendWords takes the magnitude as little-endian words.
func appendWords(dst []byte, neg bool, w [4]uint64, scale int32) ([]byte, error) {
	const chunk, chunkDigits = 1e19, 19
	var buf [chunkDigits * 5]byte
	at := len(buf)
	for w != [4]uint64{} {
		var r uint64
		for i := 3; i >= 0; i-- {
			w[i], r = bits.Div64(r, w[i], chunk)
		}
		for range chunkDigits {
			at--
			buf[at] = byte('0' + r%10)
			r /= 10
		}
	}
	d := buf[at:]
	return appendGroups(dst, neg, d, -1, len(d)-int(scale))
}

// appendGroups appends the payload of the number 0.DIGITS × 10^point. The digits
// are ASCII; a decimal point among them, at dot (-1: none), is passed over.
func appendGroups[T []byte | string](dst []byte, neg bool, digits T, dot, point int) ([]byte, error) {
	first, last := 0, len(digits)
	for first < last && (digits[first] == '0' || first == dot) {
		if first != dot {
			point--
		}
		first++
	}
	for last > first && (digits[last-1] == '0' || last-1 == dot) {
		last--
	}
	if first == last {
		return AppendDecimalSpecial(dst, DecimalPositive), nil
	}
	// The first group holds r (1–4) of the digits before the point.
	weight := (point+3)>>2 - 1
	if weight > 1<<15-1 || weight < -1<<15 {
		return dst, fmt.Errorf("read decimal: 10^%d is beyond the canonical range", point)
	}
	r := point - 4*weight
	sign := DecimalPositive
	if neg {
		sign = DecimalNegative
	}
	dst = append(dst, sign, byte(weight>>8), byte(weight), 0, 0)
	at := len(dst)
	group, left := uint16(0), r
	for i := first; i < last; i++ {
		if i == dot {
			continue
		}
		group = group*10 + uint16(digits[i]-'0')
		if left--; left == 0 {
			dst = append(dst, byte(group>>8), byte(group))
			group, left = 0, 4
		}
	}
	if left < 4 {
		for ; left > 0; left-- {
			group *= 10
		}
		dst = append(dst, byte(group>>8), byte(group))
	}
	count := (len(dst) - at) / 2
	if count > 1<<16-1 {
		return dst[:at-5], fmt.Errorf("read decimal: %d digits are beyond the canonical range", last-first)
	}
	binary.BigEndian.PutUint16(dst[at-2:], uint16(count))
	return dst, nil
}

func quote(s string) string {
	const limit = 60
	if len(s) > limit {
		return strconv.Quote(s[:limit]) + "…"
	}
	return strconv.Quote(s)
}
