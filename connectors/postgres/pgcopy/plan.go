package pgcopy

import (
	"fmt"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// op is what makes a binary field canonical.
type op uint8

const (
	// opVerbatim: the field is canonical as it stands.
	opVerbatim op = iota
	// opInt2, opInt4, opOID widen to 8 bytes.
	opInt2
	opInt4
	opOID
	// opFloat8 only looks for a NaN of another pattern; opFloat4 widens.
	opFloat8
	opFloat4
	opNumeric
	// opNumericInt turns a numeric into an integer kind.
	opNumericInt
	// opJSONB has a version byte before its text, opJSON only text.
	opJSONB
	opJSON
	opArray
	// opText… parse what the server printed.
	opTextInt
	opTextFloat
	opTextDecimal
	opTextBool
	opTextUUID
)

// plan is how the fields of one column become canonical.
type plan struct {
	op   op
	name string
	elem *plan
}

// shapeOf returns the layout in which a source of ours sends the type: the one
// PostgreSQL type that has it as its logical type.
func shapeOf(t schema.Type) (shape, bool) {
	f, ok := form(0), true
	switch t.Kind {
	case schema.Bool:
		f = formBool
	case schema.Int16:
		f = formInt2
	case schema.Int32:
		f = formInt4
	case schema.Int64:
		f = formInt8
	case schema.Uint32:
		f = formOID
	case schema.Float32:
		f = formFloat4
	case schema.Float64:
		f = formFloat8
	case schema.Decimal:
		f = formNumeric
	case schema.String, schema.Enum, schema.JSON, schema.Unknown:
		f = formText
	case schema.Bytes:
		f = formBytea
	case schema.Date:
		f = formDate
	case schema.Time:
		f = formTime
	case schema.Timestamp, schema.TimestampTZ:
		f = formTimestamp
	case schema.Interval:
		f = formInterval
	case schema.JSONB:
		f = formJSONB
	case schema.UUID:
		f = formUUID
	case schema.Array:
		e, ok := shapeOf(*t.Elem)
		return shape{form: formArray, typmod: -1, elem: &e}, ok
	default:
		ok = false
	}
	return shape{form: f, typmod: -1}, ok
}

// compile finds the way from a layout to the canonical form of a logical type.
func compile(name string, t schema.Type, s shape) (plan, error) {
	p := plan{name: name}
	if o, ok := opFor(t.Kind, s.form); ok {
		p.op = o
		return p, nil
	}
	if t.Kind == schema.Array && s.form == formArray {
		e, err := compile(name, *t.Elem, *s.elem)
		if err != nil {
			return p, err
		}
		p.op, p.elem = opArray, &e
		return p, nil
	}
	return p, engine.Permanentf(fmt.Sprintf("store the column as a type that holds %s, or select it cast to one", t),
		"digest column %q: its values of type %s can't be compared in the form %s", name, t, s.form)
}

func opFor(k schema.Kind, f form) (op, bool) {
	switch k {
	case schema.Unknown:
		// Whatever it is, both sides have it in the same form.
		return opVerbatim, true
	case schema.String, schema.Enum, schema.JSON:
		return opVerbatim, f == formText
	case schema.Bytes:
		return opVerbatim, f == formBytea
	case schema.Date:
		return opVerbatim, f == formDate
	case schema.Time:
		return opVerbatim, f == formTime
	case schema.Timestamp, schema.TimestampTZ:
		return opVerbatim, f == formTimestamp
	case schema.Interval:
		return opVerbatim, f == formInterval
	}
	switch {
	case k == schema.Bool && f == formBool, k == schema.UUID && f == formUUID, k.Integer() && f == formInt8:
		return opVerbatim, true
	case k.Integer() && f == formInt2:
		return opInt2, true
	case k.Integer() && f == formInt4:
		return opInt4, true
	case k.Integer() && f == formOID:
		return opOID, true
	case k.Integer() && f == formNumeric:
		return opNumericInt, true
	case k.Integer() && f == formText:
		return opTextInt, true
	case k == schema.Decimal && f == formNumeric:
		return opNumeric, true
	case k == schema.Decimal && f == formText:
		return opTextDecimal, true
	case k == schema.JSONB && f == formJSONB:
		return opJSONB, true
	case k == schema.JSONB && f == formText:
		return opJSON, true
	case k == schema.Bool && f == formText:
		return opTextBool, true
	case k == schema.UUID && f == formText:
		return opTextUUID, true
	case k == schema.Float32 || k == schema.Float64:
		switch f {
		case formFloat4:
			return opFloat4, true
		case formFloat8:
			return opFloat8, true
		case formText:
			return opTextFloat, true
		}
	}
	return 0, false
}
