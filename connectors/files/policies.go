package files

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/rowtext"
)

// fitter makes records fit a format under the resource's value policies
// (invariant 6), and counts what it did.
type fitter struct {
	format   string
	resource string
	target   *engine.Target
	columns  []column
	mem      memory.Allocator

	counts   engine.Totals
	setAside []engine.SetAsideRow
	aside    int64
}

// fit returns the record in which every value fits. Most records come back as
// they are, with altered false. The caller releases the result.
func (f *fitter) fit(rec arrow.RecordBatch) (out arrow.RecordBatch, altered bool, err error) {
	var all [][]misfit
	drop := map[int]bool{}
	for i := range f.target.Schema.Fields {
		found, err := misfits(f.format, f.columns[i], rec.Column(i))
		if err != nil {
			return nil, false, err
		}
		if len(found) > 0 && all == nil {
			all = make([][]misfit, len(f.target.Schema.Fields))
		}
		if all != nil {
			all[i] = found
		}
		for _, m := range found {
			if !m.silent && f.columns[i].policy == engine.PolicySetAside && !drop[m.row] {
				drop[m.row] = true
				if err := f.putAside(rec, i, m); err != nil {
					return nil, false, err
				}
			}
		}
	}
	if all == nil {
		rec.Retain()
		return rec, false, nil
	}
	cols := make([]arrow.Array, rec.NumCols())
	defer func() {
		for _, c := range cols {
			if c != nil {
				c.Release()
			}
		}
	}()
	for i := range cols {
		changes, err := f.changes(rec, i, all[i], drop)
		if err != nil {
			return nil, false, err
		}
		if cols[i], err = f.rebuild(rec.Column(i), changes, drop); err != nil {
			return nil, false, err
		}
	}
	return array.NewRecordBatch(rec.Schema(), cols, rec.NumRows()-int64(len(drop))), true, nil
}

// changes applies the column's policy to its misfits: a value by row, nil for NULL.
func (f *fitter) changes(rec arrow.RecordBatch, col int, found []misfit, drop map[int]bool) (map[int]any, error) {
	c := f.columns[col]
	changes := map[int]any{}
	for _, m := range found {
		switch {
		case drop[m.row]:
		case m.silent:
			changes[m.row] = m.nearest
		case c.policy == engine.PolicyNull && !c.key:
			changes[m.row] = nil
			f.count(c, m.reason)
		case c.policy == engine.PolicyClamp && m.nearest != nil:
			changes[m.row] = m.nearest
			f.count(c, m.reason)
		default:
			return nil, f.refuse(rec, col, m)
		}
	}
	return changes, nil
}

func (f *fitter) count(c column, reason string) {
	f.counts.AddPolicies([]engine.PolicyCount{{Column: c.source, Policy: c.policy, Reason: reason, Count: 1}})
}

// refuse names resource, column, key and value, and what could be done.
func (f *fitter) refuse(rec arrow.RecordBatch, col int, m misfit) error {
	c := f.columns[col]
	reason := m.reason + ", which " + formatTitle(f.format) + " has no place for"
	hint := "set a value policy for the column: null, clamp, text or set_aside"
	switch {
	case m.reason == reasonNoUTF8:
		reason, hint = m.reason, "set the value policy set_aside for the column, or repair the value"
	case c.policy == engine.PolicyNull && c.key:
		reason += ", and a key takes no NULL"
	case c.policy == engine.PolicyClamp:
		reason += ", and no nearest value exists"
		hint = "set the value policy null, text or set_aside for the column"
	case m.nearest == nil:
		hint = "set a value policy for the column: null, text or set_aside"
	}
	return &engine.Error{Class: engine.Permanent, Hint: hint, Err: &engine.ValueError{
		Resource: f.resource, Column: c.source, Key: f.key(rec, m.row),
		Value: describe(c.field.Type, rec.Column(col), m.row), Reason: reason,
	}}
}

func formatTitle(format string) string {
	switch format {
	case FormatParquet:
		return "Parquet"
	case FormatCSV:
		return "CSV"
	}
	return "JSONL"
}

// key prints the row's key as "id=3, day=2024-01-02".
func (f *fitter) key(rec arrow.RecordBatch, row int) string {
	var parts []string
	for _, name := range f.target.Schema.Key {
		i := f.target.Schema.Index(name)
		if i < 0 {
			continue
		}
		text := "NULL"
		if arr := rec.Column(i); arr.IsValid(row) {
			if write, err := rowtext.Text(f.columns[i].field.Type, arr); err == nil {
				text = string(write(nil, row))
			}
		}
		if len(text) > 80 {
			text = text[:80] + "…"
		}
		parts = append(parts, name+"="+text)
	}
	return strings.Join(parts, ", ")
}

// putAside keeps the row's original values for the place that the user named.
func (f *fitter) putAside(rec arrow.RecordBatch, col int, m misfit) error {
	c := f.columns[col]
	values := []byte{'{'}
	for i, field := range f.target.Schema.Fields {
		if i > 0 {
			values = append(values, ',')
		}
		values = append(rowtext.AppendString(values, field.Name), ':')
		arr := rec.Column(i)
		if arr.IsNull(m.row) {
			values = append(values, "null"...)
			continue
		}
		var err error
		if values, err = asideValue(values, f.columns[i], arr, m.row); err != nil {
			return err
		}
	}
	f.setAside = append(f.setAside, engine.SetAsideRow{
		Column: c.source, Key: f.key(rec, m.row), Reason: m.reason, Values: append(values, '}'),
	})
	f.aside++
	f.count(c, m.reason)
	return nil
}

// rebuild returns the column with changed values and without dropped rows.
func (f *fitter) rebuild(arr arrow.Array, changes map[int]any, drop map[int]bool) (arrow.Array, error) {
	if len(changes) == 0 && len(drop) == 0 {
		arr.Retain()
		return arr, nil
	}
	rows := make([]int, 0, len(changes)+len(drop))
	for r := range changes {
		rows = append(rows, r)
	}
	for r := range drop {
		rows = append(rows, r)
	}
	slices.Sort(rows)
	var parts []arrow.Array
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	next := 0
	for _, r := range rows {
		if r > next {
			parts = append(parts, array.NewSlice(arr, int64(next), int64(r)))
		}
		next = r + 1
		v, changed := changes[r]
		if !changed {
			continue
		}
		one, err := f.single(arr, r, v)
		if err != nil {
			return nil, err
		}
		parts = append(parts, one)
	}
	if next < arr.Len() || len(parts) == 0 {
		parts = append(parts, array.NewSlice(arr, int64(next), int64(arr.Len())))
	}
	out, err := array.Concatenate(parts, f.mem)
	if err != nil {
		return nil, engine.Bugf("%s: rebuild a column: %w", f.resource, err)
	}
	return out, nil
}

// single makes an array of one value in the type of arr.
func (f *fitter) single(arr arrow.Array, row int, v any) (arrow.Array, error) {
	if _, ok := v.(renumbered); ok {
		return renumber(arr.(*array.Struct), row, f.mem)
	}
	b := array.NewBuilder(f.mem, arr.DataType())
	defer b.Release()
	switch v := v.(type) {
	case nil:
		b.AppendNull()
	case int32:
		b.(*array.Date32Builder).Append(arrow.Date32(v))
	case int64:
		switch b := b.(type) {
		case *array.TimestampBuilder:
			b.Append(arrow.Timestamp(v))
		case *array.Time64Builder:
			b.Append(arrow.Time64(v))
		}
	case float32:
		b.(*array.Float32Builder).Append(v)
	case float64:
		b.(*array.Float64Builder).Append(v)
	case decimal128.Num:
		b.(*array.Decimal128Builder).Append(v)
	case decimal256.Num:
		b.(*array.Decimal256Builder).Append(v)
	case string:
		b.(*array.StringBuilder).Append(v)
	}
	if b.Len() != 1 {
		return nil, engine.Bugf("%s: no value of type %s can be made of %T", f.resource, arr.DataType(), v)
	}
	return b.NewArray(), nil
}

// renumber returns the array value of a row with its lower bounds set to 1.
func renumber(st *array.Struct, row int, mem memory.Allocator) (arrow.Array, error) {
	a, err := rowtext.NewArrays(st)
	if err != nil {
		return nil, err
	}
	b := array.NewListBuilder(mem, arrow.PrimitiveTypes.Int32)
	defer b.Release()
	b.Append(true)
	for k, n := range a.Dims(row) {
		if k%2 == 1 {
			n = 1
		}
		b.ValueBuilder().(*array.Int32Builder).Append(n)
	}
	bounds := b.NewArray()
	defer bounds.Release()
	values := array.NewSlice(a.Values, int64(row), int64(row)+1)
	defer values.Release()
	// The type is the column's own: a new struct type could differ in the flags
	// of its fields and would not be joined to the others.
	data := array.NewData(st.DataType(), 1, []*memory.Buffer{nil},
		[]arrow.ArrayData{bounds.Data(), values.Data()}, 0, 0)
	defer data.Release()
	return array.NewStructData(data), nil
}
