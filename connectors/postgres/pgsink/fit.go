package pgsink

import (
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
)

// relation is how values of one type fit into a column of another.
type relation uint8

const (
	// refused: no conversion that is known to change nothing.
	refused relation = iota
	// checked: values fit or don't; fit.Test tells.
	checked
	// widens: every value fits and comes back the same.
	widens
	// same: equal type and modifier.
	same
)

// fit is a conversion. Test and Clamp are SQL with %[1]s for the value, which is
// not NULL; Test is true where the value passes unchanged (invariant 6).
type fit struct {
	relation relation
	Test     string
	Clamp    string
	Reason   string
}

// relate compares a type of values with a column's. Where it says checked or
// widens, value::to::from is the value.
func relate(from, to pgcopy.TypeInfo) fit {
	f, t := below(from), below(to)
	switch {
	case f.OID == t.OID && f.OID != 0 && f.Typmod == t.Typmod && f.Typtype != 'e':
		return fit{relation: same}
	case f.Typtype == 'e' || t.Typtype == 'e':
		return relateEnums(f, t)
	case f.Elem != nil || t.Elem != nil:
		return relateArrays(f, t)
	}
	switch t.OID {
	case pgcopy.OIDText:
		// The text form says all of a value; char(n) loses its padding in a cast.
		if f.OID == pgcopy.OIDBpchar {
			return fit{relation: checked, Test: "right(%[1]s, 1) <> ' ' OR char_length(%[1]s) = 0", Reason: "the trailing blanks of char are lost in text"}
		}
		return fit{relation: widens}
	case pgcopy.OIDVarchar:
		if f.OID == pgcopy.OIDText || f.OID == pgcopy.OIDVarchar {
			return relateLengths(f, t)
		}
	case pgcopy.OIDInt2, pgcopy.OIDInt4, pgcopy.OIDInt8:
		return relateToInt(f, t)
	case pgcopy.OIDNumeric:
		return relateToNumeric(f, t)
	case pgcopy.OIDFloat8:
		if f.OID == pgcopy.OIDFloat4 || f.OID == pgcopy.OIDInt2 || f.OID == pgcopy.OIDInt4 {
			return fit{relation: widens}
		}
	case pgcopy.OIDFloat4:
		if f.OID == pgcopy.OIDFloat8 {
			// A cast out of range is an error, so the range is asked first.
			return fit{relation: checked, Reason: "real holds fewer digits",
				Test: "CASE WHEN %[1]s IN ('NaN', 'Infinity', '-Infinity', 0) THEN true WHEN abs(%[1]s) BETWEEN 1.2e-38 AND 3.4e38 THEN %[1]s::real::double precision = %[1]s ELSE false END"}
		}
	case pgcopy.OIDTimestamp, pgcopy.OIDTimestamptz, pgcopy.OIDTime:
		if f.OID == t.OID {
			return relateSeconds(f, t)
		}
	}
	return fit{}
}

func below(t pgcopy.TypeInfo) pgcopy.TypeInfo {
	if t.Base != nil {
		return *t.Base
	}
	return t
}

func relateEnums(f, t pgcopy.TypeInfo) fit {
	switch {
	case f.Typtype == 'e' && (t.OID == pgcopy.OIDText || t.OID == pgcopy.OIDVarchar && t.Typmod < 0):
		return fit{relation: widens}
	case t.Typtype == 'e' && (f.Typtype == 'e' || f.OID == pgcopy.OIDText || f.OID == pgcopy.OIDVarchar):
		missing := false
		for _, l := range f.Labels {
			missing = missing || !contains(t.Labels, l)
		}
		if f.Typtype == 'e' && !missing {
			if equal(f.Labels, t.Labels) {
				return fit{relation: same}
			}
			return fit{relation: widens}
		}
		labels := make([]string, len(t.Labels))
		for i, l := range t.Labels {
			labels[i] = strings.ReplaceAll(literal(l), "%", "%%")
		}
		return fit{relation: checked, Test: "%[1]s::text = ANY (ARRAY[" + strings.Join(labels, ", ") + "]::text[])",
			Reason: "it is no label of " + t.Name}
	}
	return fit{}
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

func equal(a, b []string) bool { return strings.Join(a, "\x00") == strings.Join(b, "\x00") }

func relateArrays(f, t pgcopy.TypeInfo) fit {
	switch {
	case f.Elem != nil && t.OID == pgcopy.OIDText:
		return fit{relation: widens}
	case f.Elem == nil || t.Elem == nil:
		return fit{}
	}
	// An array widens if its elements do; a narrowing would need a test of every
	// element, and is left to the user.
	if e := relate(*f.Elem, *t.Elem); e.relation >= widens {
		return fit{relation: e.relation}
	}
	return fit{}
}

func relateLengths(f, t pgcopy.TypeInfo) fit {
	have, want := charLimit(f), charLimit(t)
	if want == 0 || have > 0 && have <= want {
		return fit{relation: widens}
	}
	return fit{relation: checked, Test: fmt.Sprintf("char_length(%%[1]s) <= %d", want), Clamp: fmt.Sprintf("left(%%[1]s, %d)", want),
		Reason: fmt.Sprintf("varchar(%d) holds no more characters", want)}
}

func charLimit(t pgcopy.TypeInfo) int {
	if t.OID == pgcopy.OIDVarchar && t.Typmod >= 4 {
		return int(t.Typmod) - 4
	}
	return 0
}

// intDigits is the decimal digits that an integer type can need.
func intDigits(oid uint32) int {
	switch oid {
	case pgcopy.OIDInt2:
		return 5
	case pgcopy.OIDInt4:
		return 10
	case pgcopy.OIDInt8:
		return 19
	}
	return 0
}

func relateToInt(f, t pgcopy.TypeInfo) fit {
	from, to := intDigits(f.OID), intDigits(t.OID)
	if from > 0 && from <= to {
		return fit{relation: widens}
	}
	low, high := map[uint32]string{pgcopy.OIDInt2: "-32768", pgcopy.OIDInt4: "-2147483648", pgcopy.OIDInt8: "-9223372036854775808"}[t.OID],
		map[uint32]string{pgcopy.OIDInt2: "32767", pgcopy.OIDInt4: "2147483647", pgcopy.OIDInt8: "9223372036854775807"}[t.OID]
	between := fmt.Sprintf("%%[1]s BETWEEN %s AND %s", low, high)
	clamp := fmt.Sprintf("greatest(least(%%[1]s, %s), %s)", high, low)
	reason := fmt.Sprintf("%s holds %s to %s", t.Name, low, high)
	switch {
	case from > 0:
		return fit{relation: checked, Test: between, Clamp: clamp, Reason: reason}
	case f.OID == pgcopy.OIDNumeric:
		// NaN has no nearest number.
		return fit{relation: checked, Test: between + " AND trunc(%[1]s) = %[1]s",
			Clamp: "CASE WHEN %[1]s <> 'NaN' THEN greatest(least(round(%[1]s), " + high + "), " + low + ") END", Reason: reason + " without fraction"}
	}
	return fit{}
}

func relateToNumeric(f, t pgcopy.TypeInfo) fit {
	p, s, bounded := numericBounds(t)
	if digits := intDigits(f.OID); digits > 0 {
		if !bounded || p-s >= digits {
			return fit{relation: widens}
		}
		return numericTest(p, s, t, "%[1]s::numeric")
	}
	if f.OID != pgcopy.OIDNumeric {
		return fit{}
	}
	fp, fs, fb := numericBounds(f)
	if !bounded || fb && s >= fs && p-s >= fp-fs {
		return fit{relation: widens}
	}
	return numericTest(p, s, t, "%[1]s")
}

func numericTest(p, s int, t pgcopy.TypeInfo, value string) fit {
	limit := fmt.Sprintf("1e%d", p-s)
	greatest := fmt.Sprintf("(%s - 1e%d)", limit+"::numeric", -s)
	return fit{relation: checked,
		// NaN fits into any numeric; infinity only into one without bounds.
		Test:   fmt.Sprintf("%s = 'NaN' OR (%s BETWEEN -%s AND %s AND round(%s, %d) = %s)", value, value, greatest, greatest, value, s, value),
		Clamp:  fmt.Sprintf("CASE WHEN %s > %s THEN %s WHEN %s < -%s THEN -%s ELSE round(%s, %d) END", value, greatest, greatest, value, greatest, greatest, value, s),
		Reason: fmt.Sprintf("%s holds %d digits before and %d after the point", t.Name, p-s, s)}
}

// numericBounds splits a numeric's modifier; bounded is false without one.
func numericBounds(t pgcopy.TypeInfo) (precision, scale int, bounded bool) {
	if t.Typmod < 4 {
		return 0, 0, false
	}
	m := t.Typmod - 4
	return int(m>>16) & 0xffff, int((m&0x7ff)^0x400) - 0x400, true
}

func relateSeconds(f, t pgcopy.TypeInfo) fit {
	have, want := secondDigits(f), secondDigits(t)
	if want >= have {
		return fit{relation: widens}
	}
	name := map[uint32]string{pgcopy.OIDTimestamp: "timestamp", pgcopy.OIDTimestamptz: "timestamptz", pgcopy.OIDTime: "time"}[t.OID]
	cast := fmt.Sprintf("%%[1]s::%s(%d)", name, want)
	return fit{relation: checked, Test: cast + " = %[1]s", Clamp: cast, Reason: fmt.Sprintf("%s keeps %d digits of a second", t.Name, want)}
}

func secondDigits(t pgcopy.TypeInfo) int {
	if t.Typmod < 0 || t.Typmod > 6 {
		return 6
	}
	return int(t.Typmod)
}
