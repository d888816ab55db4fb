package pgcopy

import (
	"bytes"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// nameBytes is the longest value of type name.
const nameBytes = 63

// checkText tells why text does not fit the column: PostgreSQL holds no NUL and
// only valid UTF-8, cuts or pads to a modifier, and takes only an enum's labels.
func (e *Encoder) checkText(p *encodePlan, v []byte) *unfit {
	if p.jsonb {
		return checkJSONB(v)
	}
	if bytes.IndexByte(v, 0) >= 0 {
		return misfitf(p.clampable(), shorten(string(v)), "PostgreSQL's text can't hold the character U+0000")
	}
	if !utf8.Valid(v) {
		return misfitf(p.clampable(), shorten(string(v)), "it is not valid UTF-8")
	}
	if p.labels != nil && !slices.Contains(p.labels, string(v)) {
		return misfitf(false, shorten(string(v)), "it is not among the enum's labels")
	}
	if n := p.maxChars(); len(v) > n {
		if c := utf8.RuneCount(v); c > n {
			return misfitf(true, shorten(string(v)), "its %d characters do not fit %d", c, n)
		}
	}
	if p.shape.oid == OIDName && len(v) > nameBytes {
		return misfitf(true, shorten(string(v)), "its %d bytes do not fit the %d of type name", len(v), nameBytes)
	}
	return nil
}

// clampable: only plain text may lose or change a character.
func (p *encodePlan) clampable() bool { return p.typ.Kind == schema.String }

// maxChars returns the length of a varchar(n) or char(n).
func (p *encodePlan) maxChars() int {
	if p.shape.oid == OIDVarchar || p.shape.oid == OIDBpchar {
		if n := charTypmod(p.shape.typmod); n > 0 {
			return n
		}
	}
	return math.MaxInt
}

// clampText appends the text without NULs, with U+FFFD for what is no UTF-8, and
// cut to the column's length.
func (p *encodePlan) clampText(dst, v []byte) []byte {
	v = bytes.ToValidUTF8(bytes.ReplaceAll(v, []byte{0}, nil), []byte("\uFFFD"))
	if n := p.maxChars(); len(v) > n {
		end := 0
		for range n {
			_, size := utf8.DecodeRune(v[end:])
			end += size
		}
		v = v[:end]
	}
	if p.shape.oid == OIDName {
		for len(v) > nameBytes {
			_, size := utf8.DecodeLastRune(v)
			v = v[:len(v)-size]
		}
	}
	return integrity.AppendBytes(dst, v)
}

// checkJSONB tells why jsonb refuses text that json would take: an escaped NUL,
// or half of a surrogate pair. Escaped backslashes are passed over, so `\\u0000`
// is text like any other.
func checkJSONB(v []byte) *unfit {
	if bytes.IndexByte(v, 0) >= 0 {
		return misfitf(false, shorten(string(v)), "PostgreSQL's text can't hold the character U+0000")
	}
	if !utf8.Valid(v) {
		return misfitf(false, shorten(string(v)), "it is not valid UTF-8")
	}
	for i := bytes.IndexByte(v, '\\'); i >= 0 && i+1 < len(v); {
		step := 2
		if v[i+1] == 'u' {
			r, ok := hexRune(v, i+2)
			step = 6
			switch {
			case ok && r == 0:
				return misfitf(false, shorten(string(v)), `jsonb can't hold the character \u0000`)
			case ok && r >= 0xd800 && r < 0xdc00:
				low, ok := hexRune(v, i+8)
				if !ok || v[i+6] != '\\' || v[i+7] != 'u' || low < 0xdc00 || low > 0xdfff {
					return misfitf(false, shorten(string(v)), "jsonb can't hold half of a surrogate pair")
				}
				step = 12
			case ok && r >= 0xdc00 && r < 0xe000:
				return misfitf(false, shorten(string(v)), "jsonb can't hold half of a surrogate pair")
			}
		}
		i += step
		if i >= len(v) {
			break
		}
		next := bytes.IndexByte(v[i:], '\\')
		if next < 0 {
			break
		}
		i += next
	}
	return nil
}

func hexRune(v []byte, at int) (rune, bool) {
	if at+4 > len(v) {
		return 0, false
	}
	var r rune
	for _, b := range v[at : at+4] {
		switch {
		case b >= '0' && b <= '9':
			r = r<<4 | rune(b-'0')
		case b|0x20 >= 'a' && b|0x20 <= 'f':
			r = r<<4 | rune(b|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
