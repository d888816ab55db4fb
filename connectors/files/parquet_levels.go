package files

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/rowtext"
	"github.com/tranship-io/tranship/engine/schema"
)

// levels computes definition and repetition levels, in buffers that it keeps.
type levels struct {
	defs, reps []int16
	ones       []int16
}

// of returns what is written of a column: its values, which the caller
// releases, and its levels. A required column has none.
func (l *levels) of(c column, arr arrow.Array) (arrow.Array, []int16, []int16, error) {
	if st, ok := arr.(*array.Struct); ok && c.field.Type.Kind == schema.Array {
		return l.list(c, st)
	}
	if !c.nullable() {
		if arr.NullN() > 0 {
			return nil, nil, nil, engine.Bugf("column %q: %s", c.field.Name, reasonNull)
		}
		arr.Retain()
		return arr, nil, nil, nil
	}
	arr.Retain()
	if arr.NullN() == 0 {
		for len(l.ones) < arr.Len() {
			l.ones = append(l.ones, 1)
		}
		return arr, l.ones[:arr.Len()], nil, nil
	}
	l.defs = l.defs[:0]
	for i := range arr.Len() {
		d := int16(0)
		if arr.IsValid(i) {
			d = 1
		}
		l.defs = append(l.defs, d)
	}
	return arr, l.defs, nil, nil
}

// list returns a list column's elements with the levels of a three-level list:
// above a required list's, the list is NULL (0), empty (1), has a NULL element
// (2), an element (3). A required list's are one less, and never NULL.
func (l *levels) list(c column, st *array.Struct) (arrow.Array, []int16, []int16, error) {
	a, err := rowtext.NewArrays(st)
	if err != nil {
		return nil, nil, nil, err
	}
	base := int16(0)
	if c.nullable() {
		base = 1
	}
	l.defs, l.reps = l.defs[:0], l.reps[:0]
	first, next := int64(-1), int64(0)
	for i := range st.Len() {
		if st.IsNull(i) {
			if base == 0 {
				return nil, nil, nil, engine.Bugf("column %q: %s", c.field.Name, reasonNull)
			}
			l.defs, l.reps = append(l.defs, 0), append(l.reps, 0)
			continue
		}
		from, to := a.Values.ValueOffsets(i)
		if from == to {
			l.defs, l.reps = append(l.defs, base), append(l.reps, 0)
			continue
		}
		if first < 0 {
			first, next = from, from
		}
		if from != next {
			return nil, nil, nil, engine.Bugf("column %q: an array column has elements of no row", c.field.Name)
		}
		next = to
		for k := from; k < to; k++ {
			d, r := base+2, int16(1)
			if a.Elems.IsNull(int(k)) {
				d = base + 1
			}
			if k == from {
				r = 0
			}
			l.defs, l.reps = append(l.defs, d), append(l.reps, r)
		}
	}
	if first < 0 {
		first = 0
	}
	return array.NewSlice(a.Elems, first, next), l.defs, l.reps, nil
}
