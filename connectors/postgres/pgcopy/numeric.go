package pgcopy

import (
	"encoding/binary"
	"math/bits"

	"github.com/tranship-io/tranship/engine/integrity"
)

// Signs of a binary numeric.
const (
	numericPositive uint16 = 0x0000
	numericNegative uint16 = 0x4000
	numericNaN      uint16 = 0xc000
	numericPosInf   uint16 = 0xd000
	numericNegInf   uint16 = 0xf000
)

// numeric is a binary numeric: base-10000 groups, the first of weight 10000^weight,
// without zero groups at either end. Zero has no groups.
type numeric struct {
	weight int
	sign   uint16
	// scale is the number of digits that the server shows after the point.
	scale  int
	groups []byte
}

func parseNumeric(v []byte) (numeric, bool) {
	if len(v) < 8 {
		return numeric{}, false
	}
	n := numeric{
		weight: int(int16(binary.BigEndian.Uint16(v[2:]))),
		sign:   binary.BigEndian.Uint16(v[4:]),
		scale:  int(binary.BigEndian.Uint16(v[6:])),
		groups: v[8:],
	}
	if len(n.groups) != 2*int(binary.BigEndian.Uint16(v)) {
		return n, false
	}
	switch n.sign {
	case numericPositive, numericNegative:
	case numericNaN, numericPosInf, numericNegInf:
		n.groups = nil
	default:
		return n, false
	}
	for len(n.groups) > 0 && n.groups[0]|n.groups[1] == 0 {
		n.groups = n.groups[2:]
		n.weight--
	}
	for k := len(n.groups); k > 0 && n.groups[k-1]|n.groups[k-2] == 0; k -= 2 {
		n.groups = n.groups[:k-2]
	}
	return n, true
}

// group returns the i-th group.
func (n *numeric) group(i int) uint64 { return uint64(binary.BigEndian.Uint16(n.groups[2*i:])) }

// valid tells whether every group is one.
func (n *numeric) valid() bool {
	for i := range len(n.groups) / 2 {
		if n.group(i) > 9999 {
			return false
		}
	}
	return true
}

// canonicalSign returns the sign as the canonical encoding has it.
func (n *numeric) canonicalSign() byte {
	switch n.sign {
	case numericNegative:
		if len(n.groups) > 0 {
			return integrity.DecimalNegative
		}
	case numericNaN:
		return integrity.DecimalNaN
	case numericPosInf:
		return integrity.DecimalPosInf
	case numericNegInf:
		return integrity.DecimalNegInf
	}
	return integrity.DecimalPositive
}

// appendCanonical appends the canonical decimal field.
func (n *numeric) appendCanonical(out []byte) []byte {
	w := n.weight
	if len(n.groups) == 0 {
		w = 0
	}
	out = binary.BigEndian.AppendUint32(out, uint32(5+len(n.groups)))
	out = append(out, n.canonicalSign(), byte(w>>8), byte(w), byte(len(n.groups)>>9), byte(len(n.groups)>>1))
	return append(out, n.groups...)
}

// integer returns the number as the bits of an int64 or uint64, false if it is none.
func (n *numeric) integer() (uint64, bool) {
	count := len(n.groups) / 2
	if n.sign != numericPositive && n.sign != numericNegative || n.weight > 4 && count > 0 || count > n.weight+1 && count > 0 {
		return 0, false
	}
	var u uint64
	if count > 0 {
		for i := range n.weight + 1 {
			hi, lo := bits.Mul64(u, 10000)
			var g, carry uint64
			if i < count {
				g = n.group(i)
			}
			if u, carry = bits.Add64(lo, g, 0); hi|carry != 0 {
				return 0, false
			}
		}
	}
	if n.sign == numericNegative {
		return -u, u <= 1<<63
	}
	return u, true
}

// appendText appends the number as PostgreSQL prints it.
func (n *numeric) appendText(out []byte) []byte {
	switch n.sign {
	case numericNaN:
		return append(out, "NaN"...)
	case numericPosInf:
		return append(out, "Infinity"...)
	case numericNegInf:
		return append(out, "-Infinity"...)
	case numericNegative:
		if len(n.groups) > 0 {
			out = append(out, '-')
		}
	}
	count := len(n.groups) / 2
	at := func(i int) uint64 {
		if i >= 0 && i < count {
			return n.group(i)
		}
		return 0
	}
	// Groups 0 … weight stand before the point.
	if n.weight < 0 || count == 0 {
		out = append(out, '0')
	} else {
		for i := range n.weight + 1 {
			out = appendGroup(out, at(i), i > 0)
		}
	}
	if n.scale == 0 {
		return out
	}
	out = append(out, '.')
	end := len(out) + n.scale
	first := n.weight + 1
	if count == 0 {
		first = 0
	}
	for i := first; len(out) < end; i++ {
		out = appendGroup(out, at(i), true)
	}
	return out[:end]
}

func appendGroup(out []byte, g uint64, padded bool) []byte {
	d := [4]byte{byte('0' + g/1000), byte('0' + g/100%10), byte('0' + g/10%10), byte('0' + g%10)}
	i := 0
	for !padded && i < 3 && d[i] == '0' {
		i++
	}
	return append(out, d[i:]...)
}
