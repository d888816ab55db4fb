package rowtext

import (
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"

	"github.com/tranship-io/tranship/engine/schema"
)

const (
	textNaN     = "NaN"
	textInf     = "Infinity"
	textMinus   = "-Infinity"
	maxExponent = 1 << 20
)

// appendScaled writes an integer, given as digits with an optional minus, with
// a point before its last scale digits.
func appendScaled(dst, digits []byte, scale int) []byte {
	if len(digits) > 0 && digits[0] == '-' {
		dst, digits = append(dst, '-'), digits[1:]
	}
	if scale <= 0 {
		return append(dst, digits...)
	}
	if pad := scale + 1 - len(digits); pad > 0 {
		dst = append(dst, '0', '.')
		for range pad - 1 {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	point := len(digits) - scale
	dst = append(append(dst, digits[:point]...), '.')
	return append(dst, digits[point:]...)
}

func appendDecimal128(dst []byte, v decimal128.Num, scale int) []byte {
	switch v {
	case schema.DecimalNaN:
		return append(dst, textNaN...)
	case schema.DecimalPosInf:
		return append(dst, textInf...)
	case schema.DecimalNegInf:
		return append(dst, textMinus...)
	}
	var buf [44]byte
	hi, lo := v.HighBits(), v.LowBits()
	if (hi == 0 && lo <= math.MaxInt64) || (hi == -1 && lo >= 1<<63) {
		return appendScaled(dst, strconv.AppendInt(buf[:0], int64(lo), 10), scale)
	}
	return appendScaled(dst, v.BigInt().Append(buf[:0], 10), scale)
}

func appendDecimal256(dst []byte, v decimal256.Num, scale int) []byte {
	switch v {
	case schema.Decimal256NaN:
		return append(dst, textNaN...)
	case schema.Decimal256PosInf:
		return append(dst, textInf...)
	case schema.Decimal256NegInf:
		return append(dst, textMinus...)
	}
	var buf [80]byte
	return appendScaled(dst, v.BigInt().Append(buf[:0], 10), scale)
}

// parseScaled reads a decimal number as an integer of the given scale; it
// refuses what would need rounding.
func parseScaled(s string, scale int) (*big.Int, error) {
	r, err := exactRat(s)
	if err != nil {
		return nil, err
	}
	r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
	if !r.IsInt() {
		return nil, fmt.Errorf("read decimal %q: it has more than %d digits after the point", s, scale)
	}
	return r.Num(), nil
}

func exactRat(s string) (*big.Rat, error) {
	if !IsNumber(s) {
		return nil, fmt.Errorf("read decimal %q", s)
	}
	// A short text with a huge exponent would be a huge number.
	for i := range len(s) {
		if s[i] == 'e' || s[i] == 'E' {
			if e, err := strconv.Atoi(s[i+1:]); err != nil || e > maxExponent || e < -maxExponent {
				return nil, fmt.Errorf("read decimal %q: exponent out of range", s)
			}
		}
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, fmt.Errorf("read decimal %q", s)
	}
	return r, nil
}

// SpecialNumber returns which of NaN, +1 or −1 infinity a text is.
func SpecialNumber(s string) (nan bool, sign int) {
	switch s {
	case textNaN:
		return true, 0
	case textInf:
		return false, 1
	case textMinus:
		return false, -1
	}
	return false, 0
}

func parseDecimal128(s string, precision, scale int) (decimal128.Num, error) {
	switch nan, sign := SpecialNumber(s); {
	case nan:
		return schema.DecimalNaN, nil
	case sign > 0:
		return schema.DecimalPosInf, nil
	case sign < 0:
		return schema.DecimalNegInf, nil
	}
	n, err := parseScaled(s, scale)
	if err != nil {
		return decimal128.Num{}, err
	}
	if n.BitLen() > 127 {
		return decimal128.Num{}, fmt.Errorf("read decimal %q: it has more than %d digits", s, precision)
	}
	return decimal128.FromBigInt(n), nil
}

func parseDecimal256(s string, precision, scale int) (decimal256.Num, error) {
	switch nan, sign := SpecialNumber(s); {
	case nan:
		return schema.Decimal256NaN, nil
	case sign > 0:
		return schema.Decimal256PosInf, nil
	case sign < 0:
		return schema.Decimal256NegInf, nil
	}
	n, err := parseScaled(s, scale)
	if err != nil {
		return decimal256.Num{}, err
	}
	if n.BitLen() > 255 {
		return decimal256.Num{}, fmt.Errorf("read decimal %q: it has more than %d digits", s, precision)
	}
	return decimal256.FromBigInt(n), nil
}

// IsNumber tells whether a text is a number in JSON's grammar.
func IsNumber[T string | []byte](s T) bool {
	i := 0
	digits := func() int {
		from := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i - from
	}
	if i < len(s) && s[i] == '-' {
		i++
	}
	zero := i < len(s) && s[i] == '0'
	if n := digits(); n == 0 || (zero && n > 1) {
		return false
	}
	if i < len(s) && s[i] == '.' {
		i++
		if digits() == 0 {
			return false
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if digits() == 0 {
			return false
		}
	}
	return i == len(s)
}

func appendFloat(dst []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, textNaN...)
	case math.IsInf(v, 1):
		return append(dst, textInf...)
	case math.IsInf(v, -1):
		return append(dst, textMinus...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, bits)
}

func parseFloat(s string, bits int) (float64, error) {
	switch nan, sign := SpecialNumber(s); {
	case nan:
		return math.NaN(), nil
	case sign != 0:
		return math.Inf(sign), nil
	}
	if !IsNumber(s) {
		return 0, fmt.Errorf("read number %q", s)
	}
	return strconv.ParseFloat(s, bits)
}
