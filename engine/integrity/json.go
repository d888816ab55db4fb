package integrity

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// maxJSONDepth bounds the nesting of JSON, as PostgreSQL's stack does in effect.
const maxJSONDepth = 10000

// Canonicalizer writes JSON by value: members sorted by the length and then the
// bytes of their names, of equal names the last one, no spaces, numbers as
// digits without zeros at either end and an exponent, strings with the fewest
// escapes. Numbers are never converted, whatever their size. The zero value is
// ready; it keeps its memory, and is not safe for concurrent use.
type Canonicalizer struct {
	src     []byte
	pos     int
	depth   int
	members []member
	scratch []byte
}

// member is a "name":value in the output; name ends at nameEnd, quotes included.
type member struct{ start, nameEnd, end int }

// Append appends the canonical form of the JSON text.
func (c *Canonicalizer) Append(dst, src []byte) ([]byte, error) {
	c.src, c.pos, c.depth, c.members = src, 0, 0, c.members[:0]
	dst, err := c.value(dst)
	if err == nil {
		if c.skip(); c.pos != len(src) {
			err = errors.New("more text follows the value")
		}
	}
	if err != nil {
		return dst, fmt.Errorf("read JSON at byte %d: %w", c.pos, err)
	}
	c.src = nil
	return dst, nil
}

// skip passes over white space.
func (c *Canonicalizer) skip() {
	for c.pos < len(c.src) {
		switch c.src[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// next returns the next byte after white space, 0 at the end.
func (c *Canonicalizer) next() byte {
	c.skip()
	if c.pos < len(c.src) {
		return c.src[c.pos]
	}
	return 0
}

func (c *Canonicalizer) value(dst []byte) ([]byte, error) {
	switch b := c.next(); {
	case b == '{':
		return c.nested(dst, (*Canonicalizer).object)
	case b == '[':
		return c.nested(dst, (*Canonicalizer).array)
	case b == '"':
		return c.text(dst)
	case b == '-' || b >= '0' && b <= '9':
		return c.number(dst)
	case b == 't':
		return c.word(dst, "true")
	case b == 'f':
		return c.word(dst, "false")
	case b == 'n':
		return c.word(dst, "null")
	}
	return dst, errors.New("a value is missing")
}

func (c *Canonicalizer) word(dst []byte, w string) ([]byte, error) {
	if !bytes.HasPrefix(c.src[c.pos:], []byte(w)) {
		return dst, fmt.Errorf("it is not %s", w)
	}
	c.pos += len(w)
	return append(dst, w...), nil
}

func (c *Canonicalizer) nested(dst []byte, read func(*Canonicalizer, []byte) ([]byte, error)) ([]byte, error) {
	if c.depth++; c.depth > maxJSONDepth {
		return dst, fmt.Errorf("it is nested deeper than %d", maxJSONDepth)
	}
	dst, err := read(c, dst)
	c.depth--
	return dst, err
}

func (c *Canonicalizer) array(dst []byte) ([]byte, error) {
	c.pos++
	dst = append(dst, '[')
	if c.next() == ']' {
		c.pos++
		return append(dst, ']'), nil
	}
	for {
		var err error
		if dst, err = c.value(dst); err != nil {
			return dst, err
		}
		b := c.next()
		c.pos++
		switch b {
		case ',', ']':
			dst = append(dst, b)
			if b == ']' {
				return dst, nil
			}
		default:
			c.pos--
			return dst, errors.New("an array goes on without a comma or ends without a bracket")
		}
	}
}

func (c *Canonicalizer) object(dst []byte) ([]byte, error) {
	c.pos++
	open, base, sorted := len(dst), len(c.members), true
	dst = append(dst, '{')
	if c.next() == '}' {
		c.pos++
		return append(dst, '}'), nil
	}
	for {
		m := member{start: len(dst)}
		if c.next() != '"' {
			return dst, errors.New("a member's name is missing")
		}
		var err error
		if dst, err = c.text(dst); err != nil {
			return dst, err
		}
		m.nameEnd = len(dst)
		if c.next() != ':' {
			return dst, errors.New("a member has no colon")
		}
		c.pos++
		if dst, err = c.value(append(dst, ':')); err != nil {
			return dst, err
		}
		m.end = len(dst)
		if n := len(c.members); n > base && compareNames(dst, c.members[n-1], m) >= 0 {
			sorted = false
		}
		c.members = append(c.members, m)
		switch c.next() {
		case ',':
			c.pos++
			dst = append(dst, ',')
		case '}':
			c.pos++
			if !sorted {
				dst = c.sort(dst, open, base)
			}
			c.members = c.members[:base]
			return append(dst, '}'), nil
		default:
			return dst, errors.New("an object goes on without a comma or ends without a brace")
		}
	}
}

// compareNames orders members as PostgreSQL's jsonb prints them, so that its
// text needs no sorting.
func compareNames(buf []byte, a, b member) int {
	x, y := buf[a.start:a.nameEnd], buf[b.start:b.nameEnd]
	return cmp.Or(cmp.Compare(len(x), len(y)), bytes.Compare(x, y))
}

// sort rewrites the members from base on, which stand in dst after the brace at
// open, in order and without the earlier of equal names.
func (c *Canonicalizer) sort(dst []byte, open, base int) []byte {
	all := c.members[base:]
	slices.SortStableFunc(all, func(a, b member) int { return compareNames(dst, a, b) })
	c.scratch = c.scratch[:0]
	for i, m := range all {
		if i+1 < len(all) && compareNames(dst, m, all[i+1]) == 0 {
			continue
		}
		if len(c.scratch) > 0 {
			c.scratch = append(c.scratch, ',')
		}
		c.scratch = append(c.scratch, dst[m.start:m.end]...)
	}
	return append(dst[:open+1], c.scratch...)
}

// text reads a string, whose quote is next.
func (c *Canonicalizer) text(dst []byte) ([]byte, error) {
	c.pos++
	dst = append(dst, '"')
	for {
		// Nearly all text needs no care.
		start := c.pos
		for c.pos < len(c.src) && c.src[c.pos] != '"' && c.src[c.pos] != '\\' && c.src[c.pos] >= ' ' {
			c.pos++
		}
		dst = append(dst, c.src[start:c.pos]...)
		if c.pos == len(c.src) {
			return dst, errors.New("a string does not end")
		}
		switch b := c.src[c.pos]; b {
		case '"':
			c.pos++
			return append(dst, '"'), nil
		case '\\':
			var err error
			if dst, err = c.escape(dst); err != nil {
				return dst, err
			}
		default:
			return dst, fmt.Errorf("the control character %#02x stands in a string", b)
		}
	}
}

func (c *Canonicalizer) escape(dst []byte) ([]byte, error) {
	if c.pos+1 >= len(c.src) {
		return dst, errors.New("a string does not end")
	}
	b := c.src[c.pos+1]
	c.pos += 2
	switch b {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return append(dst, '\\', b), nil
	case '/':
		return append(dst, '/'), nil
	case 'u':
	default:
		return dst, fmt.Errorf("\\%c is no escape", b)
	}
	r, err := c.hex4()
	if err != nil {
		return dst, err
	}
	if r >= 0xd800 && r < 0xdc00 && bytes.HasPrefix(c.src[c.pos:], []byte(`\u`)) {
		back := c.pos
		c.pos += 2
		low, err := c.hex4()
		if err != nil {
			return dst, err
		}
		if low >= 0xdc00 && low < 0xe000 {
			return utf8.AppendRune(dst, 0x10000+(r-0xd800)<<10+(low-0xdc00)), nil
		}
		c.pos = back
	}
	return appendRune(dst, r), nil
}

// appendRune writes a character that stood as \uXXXX.
func appendRune(dst []byte, r rune) []byte {
	const short = "\b\f\n\r\t\"\\"
	const names = "bfnrt\"\\"
	if r < 0x80 {
		for i := range len(short) {
			if rune(short[i]) == r {
				return append(dst, '\\', names[i])
			}
		}
	}
	if r < ' ' || r >= 0xd800 && r < 0xe000 {
		// Half of a pair alone has no other form.
		const digits = "0123456789abcdef"
		return append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
	}
	return utf8.AppendRune(dst, r)
}

func (c *Canonicalizer) hex4() (rune, error) {
	if len(c.src)-c.pos < 4 {
		return 0, errors.New("a string does not end")
	}
	var r rune
	for range 4 {
		b := c.src[c.pos]
		switch {
		case b >= '0' && b <= '9':
			b -= '0'
		case b|0x20 >= 'a' && b|0x20 <= 'f':
			b = b | 0x20 - 'a' + 10
		default:
			return 0, fmt.Errorf("%q is no hexadecimal digit", b)
		}
		r = r<<4 | rune(b)
		c.pos++
	}
	return r, nil
}

// digits passes over digits and returns them.
func (c *Canonicalizer) digits() []byte {
	start := c.pos
	for c.pos < len(c.src) && c.src[c.pos] >= '0' && c.src[c.pos] <= '9' {
		c.pos++
	}
	return c.src[start:c.pos]
}

// number writes digits and an exponent, "15e-1" for 1.50: equal numbers in equal
// form, and 1e999999 stays small.
func (c *Canonicalizer) number(dst []byte) ([]byte, error) {
	start := len(dst)
	if c.src[c.pos] == '-' {
		dst = append(dst, '-')
		c.pos++
	}
	whole := c.digits()
	if len(whole) == 0 || len(whole) > 1 && whole[0] == '0' {
		return dst, errors.New("a number does not begin as one")
	}
	var frac []byte
	exp := 0
	if c.pos < len(c.src) && c.src[c.pos] == '.' {
		c.pos++
		if frac = c.digits(); len(frac) == 0 {
			return dst, errors.New("a number has no digits after its point")
		}
	}
	if c.pos < len(c.src) && c.src[c.pos]|0x20 == 'e' {
		c.pos++
		from := c.pos
		if c.pos < len(c.src) && (c.src[c.pos] == '+' || c.src[c.pos] == '-') {
			c.pos++
		}
		if len(c.digits()) == 0 {
			return dst, errors.New("a number has no digits in its exponent")
		}
		var err error
		if exp, err = strconv.Atoi(string(c.src[from:c.pos])); err != nil || exp > 1<<52 || exp < -1<<52 {
			return dst, errors.New("a number's exponent is beyond the canonical range")
		}
	}
	if frac = bytes.TrimRight(frac, "0"); len(frac) > 0 {
		exp -= len(frac)
	} else {
		kept := bytes.TrimRight(whole, "0")
		exp += len(whole) - len(kept)
		whole = kept
	}
	if len(whole) == 1 && whole[0] == '0' {
		whole, frac = nil, bytes.TrimLeft(frac, "0")
	}
	if len(whole)+len(frac) == 0 {
		return append(dst[:start], '0'), nil
	}
	dst = append(append(dst, whole...), frac...)
	if exp != 0 {
		dst = strconv.AppendInt(append(dst, 'e'), int64(exp), 10)
	}
	return dst, nil
}
