package pgcopy

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// EncodeColumn is a target column.
type EncodeColumn struct {
	Name string
	// Type is the column's type; its modifier bounds values, its Labels an
	// enum's, where they are known.
	Type TypeInfo
	// Text sends the value in its PostgreSQL text form, into a column of type
	// text from which the server casts it to Type.
	Text bool
}

// Encoder turns records into tuples.
//
// The digest of what was written after policies were applied is that of a
// [NewReadBackDigester] over the encoded tuples.
type Encoder struct {
	// OnMisfit decides about a value that does not fit; nil fails. It is called
	// once for each such value, so it can count, too. The error is the caller's
	// to keep.
	OnMisfit func(*RowError) Action

	columns []encodePlan
	rows    *integrity.RowReader
	buf     []byte
	num     []byte
}

// encodePlan is how one column is encoded.
type encodePlan struct {
	name   string
	typ    schema.Type
	shape  shape
	op     encodeOp
	labels []string
	// jsonb is true when the server makes jsonb of the text.
	jsonb bool
	major int
	elem  *encodePlan
}

// encodeOp is what makes a plain field ([integrity.RowReader]) a binary one.
type encodeOp uint8

const (
	// encVerbatim: the plain field is the binary one, once it is checked.
	encVerbatim encodeOp = iota
	encInt
	encFloat4
	encNumeric
	encTime
	encText
	encJSONB
	encArray
	// encForm writes the text form of a value that is no text.
	encForm
)

// NewEncoder makes an encoder from fields into columns, one for each field. A
// pair of types that never fits is a permanent error.
func NewEncoder(fields []schema.Field, cols []EncodeColumn) (*Encoder, error) {
	if len(fields) != len(cols) {
		return nil, engine.Bugf("encode: %d fields, %d columns", len(fields), len(cols))
	}
	e := &Encoder{columns: make([]encodePlan, len(cols)), rows: integrity.NewRowReader(fields, true)}
	for i, f := range fields {
		s := cols[i].Type.shape()
		if cols[i].Text {
			s = shape{form: formText, oid: OIDText, typmod: -1}
		}
		p, err := compileEncode(f, f.Type, cols[i], s)
		if err != nil {
			return nil, err
		}
		e.columns[i] = p
	}
	return e, nil
}

func compileEncode(f schema.Field, t schema.Type, col EncodeColumn, s shape) (encodePlan, error) {
	p := encodePlan{name: f.Name, typ: t, shape: s, major: col.Type.Major}
	k := t.Kind
	switch {
	case s.form == formText && textKind(k):
		p.op = encText
		p.labels = enumLabels(col.Type.base())
		p.jsonb = col.Type.base().OID == OIDJSONB
	case s.form == formText:
		p.op = encForm
	case s.form == formJSONB && (k == schema.JSON || k == schema.JSONB):
		p.op = encJSONB
	case k.Integer() && (s.form == formInt2 || s.form == formInt4 || s.form == formInt8 || s.form == formOID),
		k == schema.Decimal && (s.form == formInt2 || s.form == formInt4 || s.form == formInt8):
		p.op = encInt
	case (k.Integer() || k == schema.Decimal) && s.form == formNumeric:
		p.op = encNumeric
	case (k == schema.Float32 || k == schema.Float64) && s.form == formFloat8,
		k == schema.Bool && s.form == formBool,
		k == schema.Bytes && s.form == formBytea,
		k == schema.UUID && s.form == formUUID:
		p.op = encVerbatim
	case (k == schema.Float32 || k == schema.Float64) && s.form == formFloat4:
		p.op = encFloat4
	case k == schema.Date && s.form == formDate,
		k == schema.Time && s.form == formTime,
		(k == schema.Timestamp || k == schema.TimestampTZ) && s.form == formTimestamp,
		k == schema.Interval && s.form == formInterval:
		p.op = encTime
	case k == schema.Array && s.form == formArray:
		elem := col
		if b := col.Type.base(); b.Elem != nil {
			elem.Type = *b.Elem
		}
		q, err := compileEncode(f, *t.Elem, elem, *s.elem)
		if err != nil {
			return p, err
		}
		p.op, p.elem = encArray, &q
	default:
		return p, engine.Permanentf("choose another target type, or store the column as text",
			"encode column %q: values of type %s can't be written into %q of type %s", f.Name, t, col.Name, typeName(col.Type))
	}
	return p, nil
}

// textKind tells whether values of the kind travel as their own text.
func textKind(k schema.Kind) bool {
	switch k {
	case schema.String, schema.Enum, schema.JSON, schema.JSONB, schema.Unknown:
		return true
	}
	return false
}

func enumLabels(t TypeInfo) []string {
	if t.Typtype == 'e' {
		return t.Labels
	}
	return nil
}

// AppendTuples appends rows [from, to) of the record, which is in the fields'
// in-flight types, as tuples. On an error, a *RowError for a value that does not
// fit, dst ends with the last row before it.
func (e *Encoder) AppendTuples(dst []byte, rec arrow.RecordBatch, from, to int) ([]byte, error) {
	if err := e.rows.Bind(rec); err != nil {
		return dst, engine.Bugf("encode: %w", err)
	}
	if from < 0 || to > int(rec.NumRows()) {
		return dst, engine.Bugf("encode: rows %d to %d of %d", from, to, rec.NumRows())
	}
	for i := from; i < to; i++ {
		start := len(dst)
		var written bool
		var err error
		if dst, written, err = e.row(dst, i); err != nil {
			return dst[:start], err
		}
		if !written {
			dst = dst[:start]
		}
	}
	e.buf, e.num = keep(e.buf), keep(e.num)
	return dst, nil
}

func (e *Encoder) row(dst []byte, row int) (out []byte, written bool, err error) {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(e.columns)))
	for c := range e.columns {
		start := len(dst)
		var bad *unfit
		if dst, bad = e.value(dst, c, row, false); bad == nil {
			continue
		}
		dst = dst[:start]
		re := &RowError{Row: row, Column: c, Name: e.columns[c].name, Value: bad.value, Reason: bad.reason, Clampable: bad.clampable}
		action := ActionFail
		if e.OnMisfit != nil {
			action = e.OnMisfit(re)
		}
		switch action {
		case ActionNull:
			dst = integrity.AppendNull(dst)
		case ActionSkip:
			return dst, false, nil
		case ActionClamp:
			if !bad.clampable {
				return dst, false, re
			}
			if dst, bad = e.value(dst, c, row, true); bad != nil {
				return dst, false, engine.Bugf("encode column %q row %d: the clamped value does not fit: %s", re.Name, row, bad.reason)
			}
		default:
			return dst, false, re
		}
	}
	return dst, true, nil
}

// unfit is a value that does not fit its column.
type unfit struct {
	value, reason string
	clampable     bool
}

func misfitf(clampable bool, value, reason string, args ...any) *unfit {
	return &unfit{value: value, reason: fmt.Sprintf(reason, args...), clampable: clampable}
}

// value appends one field.
func (e *Encoder) value(dst []byte, col, row int, clamp bool) ([]byte, *unfit) {
	p := &e.columns[col]
	start := len(dst)
	dst, err := e.rows.AppendField(dst, col, row)
	if err != nil {
		return dst, misfitf(false, "in flight", "%s", err)
	}
	if p.op == encVerbatim || dst[start]&0x80 != 0 {
		return dst, nil
	}
	payload := dst[start+4:]
	switch p.op {
	case encText:
		// The field stands already; only a clamped one is written anew.
		if bad := e.checkText(p, payload); bad == nil || !clamp {
			return dst, bad
		}
	case encInt:
		if p.typ.Kind != schema.Decimal {
			return e.integer(dst[:start], p, binary.BigEndian.Uint64(payload), clamp)
		}
	case encTime:
		if bad := p.checkTime(payload); bad == nil || !clamp {
			return dst, bad
		}
	case encFloat4:
		return p.float4(dst[:start], binary.BigEndian.Uint64(payload), clamp)
	}
	e.buf = append(e.buf[:0], payload...)
	return e.encode(dst[:start], p, e.buf, clamp)
}

// encode appends the field of a plain payload that is not in dst.
func (e *Encoder) encode(dst []byte, p *encodePlan, v []byte, clamp bool) ([]byte, *unfit) {
	switch p.op {
	case encInt:
		if p.typ.Kind == schema.Decimal {
			return e.decimalInt(dst, p, v, clamp)
		}
		return e.integer(dst, p, binary.BigEndian.Uint64(v), clamp)
	case encFloat4:
		return p.float4(dst, binary.BigEndian.Uint64(v), clamp)
	case encNumeric:
		return e.numeric(dst, p, v, clamp)
	case encTime:
		bad := p.checkTime(v)
		switch {
		case bad == nil:
			return integrity.AppendBytes(dst, v), nil
		case clamp:
			return p.clampTime(dst, v), nil
		}
		return dst, bad
	case encText:
		bad := e.checkText(p, v)
		switch {
		case bad == nil:
			return integrity.AppendBytes(dst, v), nil
		case clamp:
			return p.clampText(dst, v), nil
		}
		return dst, bad
	case encJSONB:
		if bad := checkJSONB(v); bad != nil {
			return dst, bad
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(v)+1))
		return append(append(dst, 1), v...), nil
	case encArray:
		return e.array(dst, p, v, clamp)
	case encForm:
		dst, at := integrity.BeginField(dst)
		dst, bad := e.appendForm(dst, p.typ, v)
		return integrity.EndField(dst, at), bad
	}
	return integrity.AppendBytes(dst, v), nil
}

func (e *Encoder) array(dst []byte, p *encodePlan, v []byte, clamp bool) ([]byte, *unfit) {
	ndim := int(binary.BigEndian.Uint32(v))
	if ndim > maxDims {
		return dst, misfitf(false, fmt.Sprintf("an array of %d dimensions", ndim), "PostgreSQL's arrays have at most %d", maxDims)
	}
	dims, elems := v[4:4+8*ndim], v[4+8*ndim:]
	dst, at := integrity.BeginField(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(ndim))
	flags := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, p.shape.elemOID)
	dst = append(dst, dims...)
	for pos := 0; pos < len(elems); {
		elem, next, err := fieldAt(elems, pos)
		if err != nil {
			return dst, misfitf(false, "array", "%s", err)
		}
		if pos = next; elem == nil {
			dst[flags+3] = 1
			dst = integrity.AppendNull(dst)
			continue
		}
		var bad *unfit
		if dst, bad = e.encode(dst, p.elem, elem, clamp); bad != nil {
			return dst, bad
		}
	}
	return integrity.EndField(dst, at), nil
}
