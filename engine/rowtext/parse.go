package rowtext

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine/schema"
)

// ParseText appends what Text wrote to a builder of the type's in-flight
// Arrow type.
func ParseText(b array.Builder, t schema.Type, s string) error {
	nanos := t.Digits > 6
	switch b := b.(type) {
	case *array.BooleanBuilder:
		if s != "true" && s != "false" {
			return fmt.Errorf("read bool %q", s)
		}
		b.Append(s == "true")
	case *array.Int8Builder:
		return parseInt(s, 8, func(v int64) { b.Append(int8(v)) })
	case *array.Int16Builder:
		return parseInt(s, 16, func(v int64) { b.Append(int16(v)) })
	case *array.Int32Builder:
		return parseInt(s, 32, func(v int64) { b.Append(int32(v)) })
	case *array.Int64Builder:
		return parseInt(s, 64, b.Append)
	case *array.Uint8Builder:
		return parseUint(s, 8, func(v uint64) { b.Append(uint8(v)) })
	case *array.Uint16Builder:
		return parseUint(s, 16, func(v uint64) { b.Append(uint16(v)) })
	case *array.Uint32Builder:
		return parseUint(s, 32, func(v uint64) { b.Append(uint32(v)) })
	case *array.Uint64Builder:
		return parseUint(s, 64, b.Append)
	case *array.Float32Builder:
		v, err := parseFloat(s, 32)
		b.Append(float32(v))
		return err
	case *array.Float64Builder:
		v, err := parseFloat(s, 64)
		b.Append(v)
		return err
	case *array.Decimal128Builder:
		v, err := parseDecimal128(s, t.Precision, t.Scale)
		b.Append(v)
		return err
	case *array.Decimal256Builder:
		v, err := parseDecimal256(s, t.Precision, t.Scale)
		b.Append(v)
		return err
	case *array.StringBuilder:
		b.Append(s)
	case *array.BinaryBuilder:
		raw, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return fmt.Errorf("read base64: %w", err)
		}
		b.Append(raw)
	case *array.Date32Builder:
		v, err := parseDate(s)
		b.Append(arrow.Date32(v))
		return err
	case *array.Time64Builder:
		v, err := parseTime(s, nanos)
		b.Append(arrow.Time64(v))
		return err
	case *array.TimestampBuilder:
		v, err := parseTimestamp(s, nanos, t.Kind == schema.TimestampTZ)
		b.Append(arrow.Timestamp(v))
		return err
	case *array.MonthDayNanoIntervalBuilder:
		v, err := parseInterval(s)
		b.Append(v)
		return err
	case *array.FixedSizeBinaryBuilder:
		v, err := uuid.Parse(s)
		if err != nil {
			return fmt.Errorf("read uuid %q: %w", s, err)
		}
		b.Append(v[:])
	case *array.StructBuilder:
		return parseArray(b, t, []byte(s))
	default:
		return fmt.Errorf("read a value of type %s", t)
	}
	return nil
}

func parseInt(s string, bits int, add func(int64)) error {
	v, err := strconv.ParseInt(s, 10, bits)
	if err != nil {
		return fmt.Errorf("read integer %q: %w", s, err)
	}
	add(v)
	return nil
}

func parseUint(s string, bits int, add func(uint64)) error {
	v, err := strconv.ParseUint(s, 10, bits)
	if err != nil {
		return fmt.Errorf("read integer %q: %w", s, err)
	}
	add(v)
	return nil
}

// ParseJSON appends what JSON wrote: a JSON value that is not NULL.
func ParseJSON(b array.Builder, t schema.Type, raw []byte) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return errors.New("read JSON: there is no value")
	}
	switch t.Kind {
	case schema.JSON, schema.JSONB:
		b.(*array.StringBuilder).Append(string(raw))
		return nil
	case schema.Array:
		return parseArray(b.(*array.StructBuilder), t, raw)
	}
	text, quoted, err := scalar(raw)
	if err != nil {
		return err
	}
	switch t.Kind {
	case schema.Bool, schema.Int8, schema.Int16, schema.Int32, schema.Int64,
		schema.Uint8, schema.Uint16, schema.Uint32, schema.Uint64:
		if quoted {
			return fmt.Errorf("read %s: a string stands where a value of that type belongs", t)
		}
	case schema.Float32, schema.Float64, schema.Decimal:
		// Strings are NaN and infinities in text columns.
	default:
		if !quoted {
			return fmt.Errorf("read %s: want a JSON string, found %s", t, Shorten(text))
		}
	}
	return ParseText(b, t, text)
}

// scalar returns a JSON scalar's text, and whether it is a string. A string
// without escapes, which a wide value mostly is, is copied once.
func scalar(raw []byte) (text string, quoted bool, err error) {
	if raw[0] != '"' {
		return string(raw), false, nil
	}
	if inner := raw[1:]; bytes.IndexByte(inner, '\\') < 0 && bytes.IndexByte(inner, '"') == len(inner)-1 && utf8.Valid(inner) {
		return string(inner[:len(inner)-1]), true, nil
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", true, fmt.Errorf("read JSON string: %w", err)
	}
	return text, true, nil
}

// parseArray reads a JSON array, nested by dimension, or the object that
// carries lower bounds.
func parseArray(b *array.StructBuilder, t schema.Type, raw []byte) error {
	values := json.RawMessage(raw)
	var lower []int32
	if len(raw) > 0 && raw[0] == '{' {
		var form struct {
			Lower  []int32         `json:"lower"`
			Values json.RawMessage `json:"values"`
		}
		if err := json.Unmarshal(raw, &form); err != nil {
			return fmt.Errorf("read array: %w", err)
		}
		values, lower = form.Values, form.Lower
	}
	elem := *t.Elem
	if elem.Kind == schema.JSON || elem.Kind == schema.JSONB {
		elem = schema.Type{Kind: schema.String}
	}
	dimsB := b.FieldBuilder(schema.ArrayDims).(*array.ListBuilder)
	valsB := b.FieldBuilder(schema.ArrayValues).(*array.ListBuilder)
	b.Append(true)
	dimsB.Append(true)
	valsB.Append(true)
	var sizes []int32
	if err := flatten(values, 0, &sizes, func(v json.RawMessage) error {
		if string(v) == "null" {
			valsB.ValueBuilder().AppendNull()
			return nil
		}
		return ParseJSON(valsB.ValueBuilder(), elem, v)
	}); err != nil {
		return err
	}
	if len(sizes) == 1 && sizes[0] == 0 {
		return nil // an empty array has no dimensions
	}
	if lower != nil && len(lower) != len(sizes) {
		return errors.New("read array: its lower bounds don't agree with its dimensions")
	}
	add := dimsB.ValueBuilder().(*array.Int32Builder)
	for k, n := range sizes {
		add.Append(n)
		if lower == nil {
			add.Append(1)
		} else {
			add.Append(lower[k])
		}
	}
	return nil
}

// flatten visits the elements of nested arrays in order and finds the size of
// each dimension; ragged nesting is an error.
func flatten(raw json.RawMessage, depth int, sizes *[]int32, visit func(json.RawMessage) error) error {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return fmt.Errorf("read array: %w", err)
	}
	if depth == len(*sizes) {
		*sizes = append(*sizes, int32(len(items)))
	} else if (*sizes)[depth] != int32(len(items)) {
		return errors.New("read array: its rows differ in length")
	}
	nested := false
	for i, item := range items {
		isArray := len(item) > 0 && item[0] == '['
		if i > 0 && isArray != nested {
			return errors.New("read array: elements and arrays are mixed")
		}
		nested = isArray
		if nested {
			if err := flatten(item, depth+1, sizes, visit); err != nil {
				return err
			}
			continue
		}
		if depth+1 < len(*sizes) {
			return errors.New("read array: elements and arrays are mixed")
		}
		if err := visit(item); err != nil {
			return err
		}
	}
	return nil
}

// Shorten cuts a value for messages.
func Shorten(s string) string {
	const limit = 80
	if len(s) <= limit {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%q… (%d bytes)", s[:limit], len(s))
}
