package rowtext

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine/schema"
)

// Cell appends the value in row i, which is not NULL.
type Cell func(dst []byte, i int) []byte

// Text writes values as plain text, exactly: what ParseText reads.
func Text(t schema.Type, arr arrow.Array) (Cell, error) {
	nanos := t.Digits > 6
	switch a := arr.(type) {
	case *array.Boolean:
		return func(dst []byte, i int) []byte { return strconv.AppendBool(dst, a.Value(i)) }, nil
	case *array.Int8:
		return signed(a.Int8Values()), nil
	case *array.Int16:
		return signed(a.Int16Values()), nil
	case *array.Int32:
		return signed(a.Int32Values()), nil
	case *array.Int64:
		return signed(a.Int64Values()), nil
	case *array.Uint8:
		return unsigned(a.Uint8Values()), nil
	case *array.Uint16:
		return unsigned(a.Uint16Values()), nil
	case *array.Uint32:
		return unsigned(a.Uint32Values()), nil
	case *array.Uint64:
		return unsigned(a.Uint64Values()), nil
	case *array.Float32:
		return func(dst []byte, i int) []byte { return appendFloat(dst, float64(a.Value(i)), 32) }, nil
	case *array.Float64:
		return func(dst []byte, i int) []byte { return appendFloat(dst, a.Value(i), 64) }, nil
	case *array.Decimal128:
		return func(dst []byte, i int) []byte { return appendDecimal128(dst, a.Value(i), t.Scale) }, nil
	case *array.Decimal256:
		return func(dst []byte, i int) []byte { return appendDecimal256(dst, a.Value(i), t.Scale) }, nil
	case *array.String:
		return func(dst []byte, i int) []byte { return append(dst, a.Value(i)...) }, nil
	case *array.Binary:
		return func(dst []byte, i int) []byte { return base64.StdEncoding.AppendEncode(dst, a.Value(i)) }, nil
	case *array.Date32:
		return func(dst []byte, i int) []byte { return appendDate(dst, int32(a.Value(i))) }, nil
	case *array.Time64:
		return func(dst []byte, i int) []byte { return appendTime(dst, int64(a.Value(i)), nanos) }, nil
	case *array.Timestamp:
		zone := t.Kind == schema.TimestampTZ
		return func(dst []byte, i int) []byte { return appendTimestamp(dst, int64(a.Value(i)), nanos, zone) }, nil
	case *array.MonthDayNanoInterval:
		return func(dst []byte, i int) []byte { return appendInterval(dst, a.Value(i)) }, nil
	case *array.FixedSizeBinary:
		return func(dst []byte, i int) []byte {
			var u uuid.UUID
			copy(u[:], a.Value(i))
			text, _ := u.MarshalText() // never fails
			return append(dst, text...)
		}, nil
	case *array.Struct:
		return arrayCell(t, a)
	}
	return nil, fmt.Errorf("write a value of type %s: Arrow type %s is not known", t, arr.DataType())
}

func signed[T int8 | int16 | int32 | int64](v []T) Cell {
	return func(dst []byte, i int) []byte { return strconv.AppendInt(dst, int64(v[i]), 10) }
}

func unsigned[T uint8 | uint16 | uint32 | uint64](v []T) Cell {
	return func(dst []byte, i int) []byte { return strconv.AppendUint(dst, uint64(v[i]), 10) }
}

// JSON writes values as JSON: what ParseJSON reads. Values that JSON has no
// number for (NaN, infinities) come out as strings; they get here only in
// columns that are stored as text.
func JSON(t schema.Type, arr arrow.Array) (Cell, error) {
	text, err := Text(t, arr)
	if err != nil {
		return nil, err
	}
	switch t.Kind {
	case schema.Bool, schema.Int8, schema.Int16, schema.Int32, schema.Int64,
		schema.Uint8, schema.Uint16, schema.Uint32, schema.Uint64, schema.Array:
		return text, nil
	case schema.Float32, schema.Float64, schema.Decimal:
		return func(dst []byte, i int) []byte {
			from := len(dst)
			dst = text(dst, i)
			if last := dst[len(dst)-1]; last < '0' || last > '9' {
				word := string(dst[from:])
				return AppendString(dst[:from], word)
			}
			return dst
		}, nil
	case schema.JSON, schema.JSONB:
		a := arr.(*array.String)
		return func(dst []byte, i int) []byte { return AppendOneLine(dst, a.Value(i)) }, nil
	}
	if a, ok := arr.(*array.String); ok {
		return func(dst []byte, i int) []byte { return AppendString(dst, a.Value(i)) }, nil
	}
	// Everything else is ASCII without quotes or backslashes.
	return func(dst []byte, i int) []byte {
		return append(text(append(dst, '"'), i), '"')
	}, nil
}

// AppendOneLine writes JSON text with its line breaks, which can only stand
// between tokens, as spaces: JSONL has one document a line.
func AppendOneLine(dst []byte, s string) []byte {
	from := len(dst)
	dst = append(dst, s...)
	for i := from; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' {
			dst[i] = ' '
		}
	}
	return dst
}

// arrayCell writes arrays as JSON arrays, nested by dimension. Elements that
// are JSON themselves are strings, so that nesting always means dimensions. An
// array whose lower bounds aren't 1, which only text columns hold, is an object
// {"lower":[…],"values":[…]}.
func arrayCell(t schema.Type, st *array.Struct) (Cell, error) {
	a, err := NewArrays(st)
	if err != nil {
		return nil, err
	}
	elem := *t.Elem
	if elem.Kind == schema.JSON || elem.Kind == schema.JSONB {
		elem = schema.Type{Kind: schema.String}
	}
	value, err := JSON(elem, a.Elems)
	if err != nil {
		return nil, err
	}
	var write func(dst []byte, dims []int32, at int) ([]byte, int)
	write = func(dst []byte, dims []int32, at int) ([]byte, int) {
		dst = append(dst, '[')
		for k := range int(dims[0]) {
			if k > 0 {
				dst = append(dst, ',')
			}
			switch {
			case len(dims) > 2:
				dst, at = write(dst, dims[2:], at)
			case a.Elems.IsNull(at):
				dst, at = append(dst, "null"...), at+1
			default:
				dst, at = value(dst, at), at+1
			}
		}
		return append(dst, ']'), at
	}
	return func(dst []byte, i int) []byte {
		dims := a.Dims(i)
		if len(dims) == 0 {
			return append(dst, '[', ']')
		}
		from, _ := a.Values.ValueOffsets(i)
		if PlainBounds(dims) {
			dst, _ = write(dst, dims, int(from))
			return dst
		}
		dst = append(dst, `{"lower":[`...)
		for k := 1; k < len(dims); k += 2 {
			if k > 1 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, int64(dims[k]), 10)
		}
		dst = append(dst, `],"values":`...)
		dst, _ = write(dst, dims, int(from))
		return append(dst, '}')
	}, nil
}

// Arrays reads an array column in flight: Values are lists into Elems.
type Arrays struct {
	st       *array.Struct
	bounds   *array.List
	boundsAt *array.Int32
	Values   *array.List
	Elems    arrow.Array
}

func NewArrays(st *array.Struct) (*Arrays, error) {
	if st.NumField() != 2 {
		return nil, fmt.Errorf("an array column has %d parts, not 2", st.NumField())
	}
	a := &Arrays{st: st}
	var ok1, ok2, ok3 bool
	a.bounds, ok1 = st.Field(schema.ArrayDims).(*array.List)
	a.Values, ok2 = st.Field(schema.ArrayValues).(*array.List)
	if ok1 && ok2 {
		a.boundsAt, ok3 = a.bounds.ListValues().(*array.Int32)
	}
	if !ok1 || !ok2 || !ok3 {
		return nil, fmt.Errorf("an array column has type %s", st.DataType())
	}
	a.Elems = a.Values.ListValues()
	return a, nil
}

// Dims returns [length, lower, …] of row i.
func (a *Arrays) Dims(i int) []int32 {
	from, to := a.bounds.ValueOffsets(i)
	return a.boundsAt.Int32Values()[from:to]
}

// PlainBounds tells whether every dimension begins at 1.
func PlainBounds(dims []int32) bool {
	for k := 1; k < len(dims); k += 2 {
		if dims[k] != 1 {
			return false
		}
	}
	return true
}

const hexDigits = "0123456789abcdef"

// AppendString writes a string in quotes; it must be valid UTF-8.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, s[from:]...), '"')
}

// InvalidUTF8 returns the rows of a string column that are not UTF-8.
func InvalidUTF8(a *array.String) []int {
	if a.Len() == 0 || isASCII(a.ValueBytes()) {
		return nil
	}
	var rows []int
	for i := range a.Len() {
		if a.IsValid(i) && !utf8.ValidString(a.Value(i)) {
			rows = append(rows, i)
		}
	}
	return rows
}

func isASCII(b []byte) bool {
	for len(b) >= 8 {
		if binary.NativeEndian.Uint64(b)&0x8080808080808080 != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
