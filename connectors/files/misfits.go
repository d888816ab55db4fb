package files

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/rowtext"
	"github.com/tranship-io/tranship/engine/schema"
)

// misfit is a value that a format has no place for.
type misfit struct {
	row    int
	reason string
	// nearest is the nearest value that fits, in the column's in-flight Go type;
	// nil if there is none.
	nearest any
	// silent marks a rewrite that is no change of value: nearest is written
	// without asking the policy.
	silent bool
}

// Reasons, as receipts count them.
const (
	reasonInfinite   = "infinite"
	reasonNaN        = "not a number"
	reasonPrecision  = "more digits than the type"
	reasonMidnight   = "24:00:00"
	reasonDimensions = "array of several dimensions"
	reasonBounds     = "array with a lower bound other than 1"
	reasonElement    = "array element: "
	reasonJSONNull   = "JSON null, which reads as NULL"
	reasonNoJSON     = "not valid JSON"
	reasonNoNumber   = "not a JSON number"
	reasonNoUTF8     = "not valid UTF-8"
	reasonNull       = "NULL in a column that has none"
)

// renumbered stands for an array with its lower bounds set to 1.
type renumbered struct{}

// misfits finds the values of a column that its format has no place for:
//
//	Parquet  infinite dates and timestamps; decimal NaN and infinities; digits
//	         beyond the precision; 24:00:00; arrays of several dimensions or with
//	         lower bounds other than 1; the same in array elements
//	JSONL    the same without 24:00:00 and dimensions; floating-point NaN and
//	         infinities; JSON null and text that is no JSON in json columns
//	CSV      infinite dates and timestamps; decimal NaN and infinities; lower
//	         bounds other than 1
//	all      text that is not UTF-8
//
// A column stored as text holds all of them but the last.
func misfits(format string, c column, arr arrow.Array) ([]misfit, error) {
	var found []misfit
	if arr.NullN() > 0 && !c.field.Nullable {
		for i := range arr.Len() {
			if arr.IsNull(i) {
				return nil, engine.Bugf("column %q: %s", c.field.Name, reasonNull)
			}
		}
	}
	if s, ok := arr.(*array.String); ok && c.field.Type.Kind != schema.Decimal {
		for _, row := range rowtext.InvalidUTF8(s) {
			found = append(found, misfit{row: row, reason: reasonNoUTF8})
		}
	}
	if c.text {
		return found, nil
	}
	add := func(row int, reason string, nearest any) {
		found = append(found, misfit{row: row, reason: reason, nearest: nearest})
	}
	err := scan(format, c.field.Type, arr, add)
	if err == nil && format == FormatJSONL && c.field.Type.Kind == schema.JSON {
		found = append(found, lineBreaks(arr.(*array.String))...)
	}
	return found, err
}

// scan calls add for each misfit among values of a type.
func scan(format string, t schema.Type, arr arrow.Array, add func(int, string, any)) error {
	switch a := arr.(type) {
	case *array.Date32:
		for i, v := range a.Date32Values() {
			switch int32(v) {
			case schema.DatePosInf:
				addValid(a, i, add, reasonInfinite, int32(rowtext.DayNumber(9999, 12, 31)))
			case schema.DateNegInf:
				addValid(a, i, add, reasonInfinite, int32(rowtext.DayNumber(1, 1, 1)))
			}
		}
	case *array.Timestamp:
		first, last := farthest(t.Digits > 6)
		for i, v := range a.TimestampValues() {
			switch int64(v) {
			case schema.TimestampPosInf:
				addValid(a, i, add, reasonInfinite, last)
			case schema.TimestampNegInf:
				addValid(a, i, add, reasonInfinite, first)
			}
		}
	case *array.Time64:
		if format != FormatParquet {
			return nil
		}
		unit, _ := rowtext.PerSecond(t.Digits > 6)
		for i, v := range a.Time64Values() {
			if int64(v) >= rowtext.SecondsPerDay*unit {
				addValid(a, i, add, reasonMidnight, rowtext.SecondsPerDay*unit-1)
			}
		}
	case *array.Decimal128:
		scanDecimal128(t, a, add)
	case *array.Decimal256:
		scanDecimal256(t, a, add)
	case *array.Float32:
		if format == FormatJSONL {
			for i, v := range a.Float32Values() {
				if r, near := nonFinite(float64(v), math.MaxFloat32); r != "" {
					if near != nil {
						near = float32(near.(float64))
					}
					addValid(a, i, add, r, near)
				}
			}
		}
	case *array.Float64:
		if format == FormatJSONL {
			for i, v := range a.Float64Values() {
				if r, near := nonFinite(v, math.MaxFloat64); r != "" {
					addValid(a, i, add, r, near)
				}
			}
		}
	case *array.String:
		scanString(format, t, a, add)
	case *array.Struct:
		return scanArrays(format, t, a, add)
	}
	return nil
}

// addValid leaves NULLs out: what lies under them is nobody's value.
func addValid(a arrow.Array, i int, add func(int, string, any), reason string, nearest any) {
	if a.IsValid(i) {
		add(i, reason, nearest)
	}
}

// farthest returns the timestamps that stand for the infinities under clamp:
// the ends of years 1 and 9999, or what nanoseconds can count.
func farthest(nanos bool) (first, last int64) {
	if nanos {
		return math.MinInt64 + 1, math.MaxInt64 - 1
	}
	return rowtext.DayNumber(1, 1, 1) * rowtext.SecondsPerDay * 1e6, (rowtext.DayNumber(9999, 12, 31)+1)*rowtext.SecondsPerDay*1e6 - 1
}

func nonFinite(v, largest float64) (string, any) {
	switch {
	case v-v == 0: // finite: the common case in one comparison
		return "", nil
	case math.IsNaN(v):
		return reasonNaN, nil
	}
	return reasonInfinite, math.Copysign(largest, v)
}

func scanDecimal128(t schema.Type, a *array.Decimal128, add func(int, string, any)) {
	limit := decimal128.GetMaxValue(int32(t.Precision))
	for i, v := range a.Values() {
		hi := v.HighBits()
		if (hi == 0 || hi == -1) && t.Precision >= 20 {
			continue // below 2^64 < 10^20
		}
		if v.LessEqual(limit) && limit.Negate().LessEqual(v) {
			continue
		}
		switch v {
		case schema.DecimalNaN:
			addValid(a, i, add, reasonNaN, nil)
		case schema.DecimalPosInf:
			addValid(a, i, add, reasonInfinite, limit)
		case schema.DecimalNegInf:
			addValid(a, i, add, reasonInfinite, limit.Negate())
		default:
			near := limit
			if v.Sign() < 0 {
				near = limit.Negate()
			}
			addValid(a, i, add, reasonPrecision, near)
		}
	}
}

func scanDecimal256(t schema.Type, a *array.Decimal256, add func(int, string, any)) {
	limit := decimal256.GetMaxValue(int32(t.Precision))
	for i, v := range a.Values() {
		if v.LessEqual(limit) && limit.Negate().LessEqual(v) {
			continue
		}
		switch v {
		case schema.Decimal256NaN:
			addValid(a, i, add, reasonNaN, nil)
		case schema.Decimal256PosInf:
			addValid(a, i, add, reasonInfinite, limit)
		case schema.Decimal256NegInf:
			addValid(a, i, add, reasonInfinite, limit.Negate())
		default:
			near := limit
			if v.Sign() < 0 {
				near = limit.Negate()
			}
			addValid(a, i, add, reasonPrecision, near)
		}
	}
}

func scanString(format string, t schema.Type, a *array.String, add func(int, string, any)) {
	switch t.Kind {
	case schema.Decimal: // unbounded; Parquet stores it as text
		for i := range a.Len() {
			if a.IsNull(i) {
				continue
			}
			s := a.Value(i)
			nan, sign := rowtext.SpecialNumber(s)
			switch {
			case nan:
				add(i, reasonNaN, nil)
			case sign != 0:
				add(i, reasonInfinite, nil)
			case !rowtext.IsNumber(s):
				add(i, reasonNoNumber, nil)
			}
		}
	case schema.JSON, schema.JSONB:
		if format != FormatJSONL {
			return
		}
		for i := range a.Len() {
			if a.IsNull(i) {
				continue
			}
			switch s := []byte(a.Value(i)); {
			case !json.Valid(s):
				add(i, reasonNoJSON, nil)
			case isJSONNull(s):
				add(i, reasonJSONNull, nil)
			}
		}
	}
}

func isJSONNull(s []byte) bool {
	var v json.RawMessage
	return len(s) < 64 && json.Unmarshal(s, &v) == nil && string(v) == "null"
}

// lineBreaks finds JSON text, kept as it is written, that has to be put on one line.
func lineBreaks(a *array.String) []misfit {
	var found []misfit
	for i := range a.Len() {
		if a.IsNull(i) {
			continue
		}
		s := a.Value(i)
		if flat := string(rowtext.AppendOneLine(nil, s)); flat != s {
			found = append(found, misfit{row: i, nearest: flat, silent: true})
		}
	}
	return found
}

// scanArrays finds arrays that have no place: by their bounds, or for one of
// their elements, which then makes the whole array one.
func scanArrays(format string, t schema.Type, st *array.Struct, add func(int, string, any)) error {
	a, err := rowtext.NewArrays(st)
	if err != nil {
		return err
	}
	bad := map[int]string{}
	err = scan(format, *t.Elem, a.Elems, func(i int, reason string, _ any) { bad[i] = reason })
	if err != nil {
		return err
	}
	for i := range st.Len() {
		if st.IsNull(i) {
			continue
		}
		dims := a.Dims(i)
		switch {
		case format == FormatParquet && len(dims) > 2:
			add(i, reasonDimensions, nil)
			continue
		case !rowtext.PlainBounds(dims):
			add(i, reasonBounds, renumbered{})
			continue
		}
		if len(bad) == 0 {
			continue
		}
		from, to := a.Values.ValueOffsets(i)
		for k := from; k < to; k++ {
			// A json element is a string there, where null is told from NULL.
			if reason, ok := bad[int(k)]; ok && reason != reasonJSONNull {
				add(i, reasonElement+reason, nil)
				break
			}
		}
	}
	return nil
}

// checkRecord refuses a record that is not in the in-flight types of its schema.
func checkRecord(resource string, s *schema.Schema, rec arrow.RecordBatch) error {
	if int(rec.NumCols()) != len(s.Fields) {
		return engine.Bugf("%s: a batch has %d columns, the schema %d", resource, rec.NumCols(), len(s.Fields))
	}
	for i, f := range s.Fields {
		if got, want := rec.Column(i).DataType(), f.Type.Arrow(); !sameType(got, want) {
			return engine.Bugf("%s: column %q travels as %s, not as %s", resource, f.Name, got, want)
		}
	}
	return nil
}

// sameType compares types without the names and flags of nested fields.
func sameType(a, b arrow.DataType) bool {
	if a.ID() != b.ID() {
		return false
	}
	switch a := a.(type) {
	case *arrow.ListType:
		return sameType(a.Elem(), b.(*arrow.ListType).Elem())
	case *arrow.StructType:
		o := b.(*arrow.StructType)
		if a.NumFields() != o.NumFields() {
			return false
		}
		for i := range a.NumFields() {
			if !sameType(a.Field(i).Type, o.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return arrow.TypeEqual(a, b)
}

// describe prints a value for messages.
func describe(t schema.Type, arr arrow.Array, i int) string {
	if arr.IsNull(i) {
		return "NULL"
	}
	write, err := rowtext.Text(t, arr)
	if err != nil {
		return fmt.Sprintf("of type %s", t)
	}
	return rowtext.Shorten(string(write(nil, i)))
}
