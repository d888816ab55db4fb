package files

import (
	"encoding/binary"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/tranship-io/tranship/engine"
)

// valueWriter hands the values of arrays to the typed writers of column chunks:
// as they lie in memory where Parquet stores the same, and through memory that
// it keeps where NULLs leave gaps or the file's type is another.
type valueWriter struct {
	i32   []int32
	i64   []int64
	f32   []float32
	f64   []float64
	bools []bool
	raw   []byte
	views []parquet.ByteArray
	fixed []parquet.FixedLenByteArray
}

// number is a type of values of fixed width.
type number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// write adds an array's values, with levels where the column has them.
func (v *valueWriter) write(cw file.ColumnChunkWriter, arr arrow.Array, defs, reps []int16) error {
	var err error
	switch w := cw.(type) {
	case *file.BooleanColumnChunkWriter:
		err = v.writeBools(w, arr, defs, reps)
	case *file.Int32ColumnChunkWriter:
		var values []int32
		if values, err = v.int32s(arr); err == nil {
			_, err = w.WriteBatch(values, defs, reps)
		}
	case *file.Int64ColumnChunkWriter:
		var values []int64
		if values, err = v.int64s(arr); err == nil {
			_, err = w.WriteBatch(values, defs, reps)
		}
	case *file.Float32ColumnChunkWriter:
		var values []float32
		if values, err = same(&v.f32, arr, arrow.FLOAT32); err == nil {
			_, err = w.WriteBatch(values, defs, reps)
		}
	case *file.Float64ColumnChunkWriter:
		var values []float64
		if values, err = same(&v.f64, arr, arrow.FLOAT64); err == nil {
			_, err = w.WriteBatch(values, defs, reps)
		}
	case *file.ByteArrayColumnChunkWriter:
		err = v.writeBytes(w, arr, defs, reps)
	case *file.FixedLenByteArrayColumnChunkWriter:
		err = v.writeFixed(w, arr, defs, reps)
	default:
		err = mismatch(arr)
	}
	return err
}

func mismatch(arr arrow.Array) error {
	return engine.Bugf("values in memory are %s, which the file's type does not hold", arr.DataType())
}

func (v *valueWriter) writeBools(w *file.BooleanColumnChunkWriter, arr arrow.Array, defs, reps []int16) error {
	b, ok := arr.(*array.Boolean)
	if !ok {
		return mismatch(arr)
	}
	if b.Len() > 0 && b.NullN() == 0 {
		_, err := w.WriteBitmapBatch(b.Data().Buffers()[1].Bytes(), int64(b.Offset()), b.Len(), defs, reps)
		return err
	}
	v.bools = v.bools[:0]
	for i := range b.Len() {
		if b.IsValid(i) {
			v.bools = append(v.bools, b.Value(i))
		}
	}
	_, err := w.WriteBatch(v.bools, defs, reps)
	return err
}

func (v *valueWriter) int32s(arr arrow.Array) ([]int32, error) {
	switch a := arr.(type) {
	case *array.Int32, *array.Uint32, *array.Date32:
		return same(&v.i32, arr, arr.DataType().ID())
	case *array.Int8:
		return dense(&v.i32, a.Int8Values(), arr), nil
	case *array.Int16:
		return dense(&v.i32, a.Int16Values(), arr), nil
	case *array.Uint8:
		return dense(&v.i32, a.Uint8Values(), arr), nil
	case *array.Uint16:
		return dense(&v.i32, a.Uint16Values(), arr), nil
	case *array.Decimal128:
		v.i32 = slices.Grow(v.i32[:0], a.Len())
		for i, n := range a.Values() {
			if a.IsNull(i) {
				continue
			}
			short := int32(n.LowBits())
			if uint64(int64(short)) != n.LowBits() || n.HighBits() != int64(short)>>63 {
				return nil, engine.Bugf("a decimal has more digits than its type %s", a.DataType())
			}
			v.i32 = append(v.i32, short)
		}
		return v.i32, nil
	}
	return nil, mismatch(arr)
}

func (v *valueWriter) int64s(arr arrow.Array) ([]int64, error) {
	switch a := arr.(type) {
	case *array.Int64, *array.Uint64, *array.Time64, *array.Timestamp:
		return same(&v.i64, arr, arr.DataType().ID())
	case *array.Decimal128:
		v.i64 = slices.Grow(v.i64[:0], a.Len())
		for i, n := range a.Values() {
			if a.IsNull(i) {
				continue
			}
			short := int64(n.LowBits())
			if n.HighBits() != short>>63 {
				return nil, engine.Bugf("a decimal has more digits than its type %s", a.DataType())
			}
			v.i64 = append(v.i64, short)
		}
		return v.i64, nil
	}
	return nil, mismatch(arr)
}

// same returns the values of an array whose bytes in memory are the file's type.
func same[T arrow.FixedWidthType](keep *[]T, arr arrow.Array, want arrow.Type) ([]T, error) {
	if arr.DataType().ID() != want {
		return nil, mismatch(arr)
	}
	d := arr.Data()
	if d.Len() == 0 {
		return (*keep)[:0], nil
	}
	values := arrow.GetData[T](d.Buffers()[1].Bytes())[d.Offset():][:d.Len()]
	if arr.NullN() == 0 {
		return values, nil
	}
	*keep = slices.Grow((*keep)[:0], len(values))
	for i, n := range values {
		if arr.IsValid(i) {
			*keep = append(*keep, n)
		}
	}
	return *keep, nil
}

// dense converts an array's values, leaving NULLs out.
func dense[T, S number](keep *[]T, values []S, arr arrow.Array) []T {
	*keep = slices.Grow((*keep)[:0], len(values))
	nulls := arr.NullN() > 0
	for i, n := range values {
		if !nulls || arr.IsValid(i) {
			*keep = append(*keep, T(n))
		}
	}
	return *keep
}

// writeBytes writes text or bytes. No value is copied before the page's encoder
// does: a column with a dictionary gets views of the array's memory.
func (v *valueWriter) writeBytes(w *file.ByteArrayColumnChunkWriter, arr arrow.Array, defs, reps []int16) error {
	b, ok := arr.(array.BinaryLike)
	if !ok || arr.DataType().ID() != arrow.STRING && arr.DataType().ID() != arrow.BINARY {
		return mismatch(arr)
	}
	at := b.(interface{ ValueOffsets() []int32 }).ValueOffsets()
	var data []byte
	if buffer := arr.Data().Buffers()[2]; buffer != nil {
		data = buffer.Bytes()
	}
	switch {
	case w.SupportsArrowOffsets() && arr.NullN() == 0:
		_, err := w.WriteBatchArrow(data, at, defs, reps)
		return err
	case w.SupportsArrowOffsets():
		_, err := w.WriteBatchSpacedArrow(data, at, defs, reps, arr.NullBitmapBytes(), int64(arr.Data().Offset()))
		return err
	}
	v.views = slices.Grow(v.views[:0], arr.Len())
	nulls := arr.NullN() > 0
	for i := range arr.Len() {
		if !nulls || arr.IsValid(i) {
			v.views = append(v.views, data[at[i]:at[i+1]:at[i+1]])
		}
	}
	_, err := w.WriteBatch(v.views, defs, reps)
	clear(v.views) // they would keep the record's memory
	return err
}

// writeFixed writes UUIDs, and decimals as big-endian integers.
func (v *valueWriter) writeFixed(w *file.FixedLenByteArrayColumnChunkWriter, arr arrow.Array, defs, reps []int16) error {
	width := w.Descr().TypeLength()
	raw, err := v.fixedBytes(arr, width)
	if err != nil {
		return err
	}
	if w.SupportsArrowValues() {
		_, err = w.WriteBatchArrow(raw, defs, reps)
		return err
	}
	v.fixed = slices.Grow(v.fixed[:0], len(raw)/width)
	for ; len(raw) > 0; raw = raw[width:] {
		v.fixed = append(v.fixed, raw[:width:width])
	}
	_, err = w.WriteBatch(v.fixed, defs, reps)
	clear(v.fixed)
	return err
}

// fixedBytes returns the values, without NULLs, one behind the other.
func (v *valueWriter) fixedBytes(arr arrow.Array, width int) ([]byte, error) {
	v.raw = slices.Grow(v.raw[:0], arr.Len()*width)
	switch a := arr.(type) {
	case *array.FixedSizeBinary:
		if a.DataType().(*arrow.FixedSizeBinaryType).ByteWidth != width {
			return nil, mismatch(arr)
		}
		if a.Len() > 0 && a.NullN() == 0 {
			return a.Data().Buffers()[1].Bytes()[a.Offset()*width : (a.Offset()+a.Len())*width], nil
		}
		for i := range a.Len() {
			if a.IsValid(i) {
				v.raw = append(v.raw, a.Value(i)...)
			}
		}
		return v.raw, nil
	case *array.Decimal128:
		if width <= 8 || width > 16 {
			return nil, mismatch(arr)
		}
		var whole [16]byte
		for i, n := range a.Values() {
			if a.IsNull(i) {
				continue
			}
			if rest := n.HighBits() >> (8*(width-8) - 1); rest != 0 && rest != -1 {
				return nil, engine.Bugf("a decimal has more digits than its type %s", a.DataType())
			}
			binary.BigEndian.PutUint64(whole[:], uint64(n.HighBits()))
			binary.BigEndian.PutUint64(whole[8:], n.LowBits())
			v.raw = append(v.raw, whole[16-width:]...)
		}
		return v.raw, nil
	}
	return nil, mismatch(arr)
}
