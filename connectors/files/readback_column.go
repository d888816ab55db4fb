package files

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/tranship-io/tranship/engine/schema"
)

// columnReader reads one column of a Parquet file into arrays in flight.
type columnReader struct {
	typ  schema.Type // of a value: of an element, in a list column
	leaf arrow.DataType
	rr   file.RecordReader
	mem  memory.Allocator
	// list is the Arrow type of a list column, nil for others; empty is the
	// definition level of an empty list.
	list  *arrow.StructType
	empty int16
}

func newColumnReader(c column, pf *file.Reader, i int, mem memory.Allocator) *columnReader {
	r := &columnReader{typ: c.field.Type, mem: mem}
	info := file.LevelInfo{NullSlotUsage: 1}
	if c.nullable() {
		info.IncrementOptional()
	}
	if c.text {
		r.typ = schema.Type{Kind: schema.String}
	} else if r.typ.Kind == schema.Array {
		r.list = r.typ.Arrow().(*arrow.StructType)
		r.empty = info.DefLevel
		r.typ = *r.typ.Elem
		info.IncrementRepeated()
		info.IncrementOptional()
	}
	r.leaf = r.typ.Arrow()
	r.rr = file.NewRecordReader(pf.MetaData().Schema.Column(i), info, r.leaf, mem, pf.BufferPool())
	return r
}

// open goes on with the column of the next row group.
func (r *columnReader) open(group *file.RowGroupReader, i int) error {
	pages, err := group.GetColumnPageReader(i)
	if err != nil {
		return err
	}
	rr, ok := r.rr.(file.RecordReaderWithError)
	if !ok {
		return fmt.Errorf("the reader %T reports no errors", r.rr)
	}
	return rr.SetPageReaderWithError(pages)
}

// read returns the next rows; fewer only if the column ends.
func (r *columnReader) read(rows int64) (arrow.Array, error) {
	r.rr.Reset()
	if err := r.rr.Reserve(rows); err != nil {
		return nil, err
	}
	for left := rows; left > 0; {
		n, err := r.rr.ReadRecords(left)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		left -= n
	}
	if r.list == nil {
		return r.values()
	}
	elems, err := r.values()
	if err != nil {
		return nil, fmt.Errorf("its elements: %w", err)
	}
	defer elems.Release()
	return r.lists(elems)
}

// values takes what was read out of the reader. What lies in memory as in
// flight is not copied.
func (r *columnReader) values() (arrow.Array, error) {
	switch rr := r.rr.(type) {
	case file.BooleanRecordReader:
		return r.array(rr.ReleaseValueBitmap(), rr.ReleaseValidBits()), nil
	case file.BinaryRecordReader:
		chunks := rr.GetBuilderChunks()
		defer func() {
			for _, c := range chunks {
				c.Release()
			}
		}()
		if len(chunks) != 1 {
			return nil, fmt.Errorf("the reader gave %d parts, not 1", len(chunks))
		}
		if fixed, ok := chunks[0].(*array.FixedSizeBinary); ok && r.typ.Kind == schema.Decimal {
			return r.decimals(fixed)
		}
		if !arrow.TypeEqual(chunks[0].DataType(), r.leaf) {
			return nil, fmt.Errorf("it is %s in the file, not %s", chunks[0].DataType(), r.leaf)
		}
		return array.MakeFromData(chunks[0].Data()), nil
	}
	n := r.rr.ValuesWritten()
	bits := r.rr.ReleaseValidBits()
	values := r.rr.ReleaseValues()
	if width := r.leaf.(arrow.FixedWidthDataType).Bytes(); width == r.rr.Type().ByteSize() {
		return r.array(values, bits), nil
	} else if n > 0 {
		wide := memory.NewResizableBuffer(r.mem)
		wide.Resize(n * width)
		err := r.resize(wide.Bytes(), values.Bytes(), bits, n)
		values.Release()
		values = wide
		if err != nil {
			r.array(values, bits).Release()
			return nil, err
		}
	}
	return r.array(values, bits), nil
}

// array makes an array of the buffers, which it takes over.
func (r *columnReader) array(values, bits *memory.Buffer) arrow.Array {
	data := array.NewData(r.leaf, r.rr.ValuesWritten(), []*memory.Buffer{bits, values}, nil, int(r.rr.NullCount()), 0)
	defer data.Release()
	values.Release()
	if bits != nil {
		bits.Release()
	}
	return array.MakeFromData(data)
}

// resize converts integers of the file to narrower ones and to decimals. A
// value that the narrow type can't hold is no value that was written.
func (r *columnReader) resize(dst, src []byte, bits *memory.Buffer, n int) error {
	valid := func(i int) bool { return bits == nil || bits.Bytes()[i/8]>>(i%8)&1 == 1 }
	short := arrow.GetData[int32](src)
	switch r.leaf.ID() {
	case arrow.INT8:
		return narrow(arrow.GetData[int8](dst), short, valid)
	case arrow.INT16:
		return narrow(arrow.GetData[int16](dst), short, valid)
	case arrow.UINT8:
		return narrow(arrow.GetData[uint8](dst), short, valid)
	case arrow.UINT16:
		return narrow(arrow.GetData[uint16](dst), short, valid)
	case arrow.DECIMAL128:
		out := arrow.GetData[decimal128.Num](dst)
		if r.rr.Type() == parquet.Types.Int32 {
			for i, v := range short[:n] {
				out[i] = decimal128.FromI64(int64(v))
			}
			return nil
		}
		for i, v := range arrow.GetData[int64](src)[:n] {
			out[i] = decimal128.FromI64(v)
		}
		return nil
	}
	return fmt.Errorf("it is %s in the file, not %s", r.rr.Type(), r.leaf)
}

func narrow[T int8 | int16 | uint8 | uint16](dst []T, src []int32, valid func(int) bool) error {
	for i := range dst {
		dst[i] = T(src[i])
		if int32(dst[i]) != src[i] && valid(i) {
			return fmt.Errorf("the value %d is beyond its type", src[i])
		}
	}
	return nil
}

// decimals reads big-endian integers.
func (r *columnReader) decimals(a *array.FixedSizeBinary) (arrow.Array, error) {
	t, ok := r.leaf.(*arrow.Decimal128Type)
	width := a.DataType().(*arrow.FixedSizeBinaryType).ByteWidth
	if !ok || width <= 8 || width > 16 {
		return nil, fmt.Errorf("it has decimals of %d bytes, not %s", width, r.leaf)
	}
	b := array.NewDecimal128Builder(r.mem, t)
	defer b.Release()
	b.Reserve(a.Len())
	for i := range a.Len() {
		if a.IsNull(i) {
			b.UnsafeAppendBoolToBitmap(false)
			continue
		}
		v := a.Value(i)
		high := int64(int8(v[0]))
		for _, d := range v[1 : width-8] {
			high = high<<8 | int64(d)
		}
		b.UnsafeAppend(decimal128.New(high, binary.BigEndian.Uint64(v[width-8:])))
	}
	return b.NewArray(), nil
}

// lists rebuilds lists of one dimension, with their bounds, from the levels.
func (r *columnReader) lists(elems arrow.Array) (arrow.Array, error) {
	n := int(r.rr.LevelsPos())
	defs, reps := r.rr.DefLevels()[:n], r.rr.RepLevels()[:n]
	valid := array.NewBooleanBuilder(r.mem)
	defer valid.Release()
	dims := array.NewListBuilder(r.mem, arrow.PrimitiveTypes.Int32)
	defer dims.Release()
	sizes := dims.ValueBuilder().(*array.Int32Builder)
	offsets := []int32{0}
	count, nulls := int32(0), 0
	for i := 0; i < n; {
		if reps[i] != 0 {
			return nil, fmt.Errorf("a list goes on where one should begin")
		}
		d, from := defs[i], count
		for i++; i < n && reps[i] != 0; i++ {
			count++
		}
		if d > r.empty {
			count++
		} else if count != from {
			return nil, fmt.Errorf("a list is empty and has elements")
		}
		offsets = append(offsets, count)
		valid.Append(d >= r.empty)
		dims.Append(d >= r.empty)
		if d < r.empty {
			nulls++
		}
		if count > from {
			sizes.Append(count - from)
			sizes.Append(1)
		}
	}
	if int(count) != elems.Len() {
		return nil, fmt.Errorf("its lists have %d elements, %d were read", count, elems.Len())
	}
	rows := len(offsets) - 1
	bounds := dims.NewArray()
	defer bounds.Release()
	validity := valid.NewBooleanArray()
	defer validity.Release()
	bits := validity.Data().Buffers()[1]
	at := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))
	values := array.NewData(r.list.Field(schema.ArrayValues).Type, rows, []*memory.Buffer{bits, at},
		[]arrow.ArrayData{elems.Data()}, nulls, 0)
	defer values.Release()
	data := array.NewData(r.list, rows, []*memory.Buffer{bits}, []arrow.ArrayData{bounds.Data(), values}, nulls, 0)
	defer data.Release()
	return array.NewStructData(data), nil
}
