package files

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/klauspost/compress/zstd"
)

const (
	// sampleRows are looked at to decide on a dictionary. Of text it is worth while
	// if less than sampleShare of them differ; of numbers, which zstd makes as small
	// in half the time unless they are few, if less than numberShare do.
	sampleRows  = 4096
	sampleShare = 0.5
	numberShare = 0.1
	// sampleBytes of a column's values are compressed to see whether it pays: a
	// column that keeps more than poorRatio of its size is written as it is, which
	// spares half of the time that random numbers and hashes take.
	sampleBytes = 64 << 10
	poorRatio   = 0.92
)

// repeats tells whether values of a column come again and again, so that a
// dictionary pays.
func repeats(arr arrow.Array) bool {
	value := hashable(arr)
	if value == nil || arr.Len() == 0 {
		return false
	}
	share := sampleShare
	if width, ok := arr.DataType().(arrow.FixedWidthDataType); ok && width.Bytes() <= 16 && arr.DataType().ID() != arrow.FIXED_SIZE_BINARY {
		share = numberShare
	}
	seed := maphash.MakeSeed()
	step := max(arr.Len()/sampleRows, 1)
	seen := make(map[uint64]struct{}, sampleRows)
	looked := 0
	// Steps of one length would see few values of a column that has a period.
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // no secret: the same rows are looked at each time
	for i := 0; i < arr.Len(); i += 1 + random.IntN(2*step-1) {
		if arr.IsValid(i) {
			seen[maphash.Bytes(seed, value(i))] = struct{}{}
			looked++
		}
	}
	return float64(len(seen)) <= share*float64(looked)
}

// hashable returns the bytes of a value, or nil for a type whose values are too
// small for a dictionary to pay.
func hashable(arr arrow.Array) func(i int) []byte {
	switch a := arr.(type) {
	case *array.Boolean, *array.Int8, *array.Uint8, *array.Struct:
		return nil
	case *array.String:
		return func(i int) []byte { return []byte(a.Value(i)) }
	case *array.Binary:
		return a.Value
	case *array.FixedSizeBinary:
		return a.Value
	}
	width, ok := arr.DataType().(arrow.FixedWidthDataType)
	buffers := arr.Data().Buffers()
	if !ok || len(buffers) < 2 || buffers[1] == nil {
		return nil
	}
	n, offset, raw := width.Bytes(), arr.Data().Offset(), buffers[1].Bytes()
	return func(i int) []byte { return raw[(offset+i)*n : (offset+i+1)*n] }
}

// shrinks tells whether zstd makes a column's plain values smaller.
func shrinks(z *zstd.Encoder, arr arrow.Array) bool {
	raw := plainValues(arr)
	if len(raw) > sampleBytes {
		raw = raw[:sampleBytes]
	}
	if len(raw) < sampleBytes/16 {
		return true // too little to tell
	}
	return float64(len(z.EncodeAll(raw, nil))) < poorRatio*float64(len(raw))
}

// plainValues returns a column's values as Parquet writes them without a
// dictionary, or nil where memory and file differ.
func plainValues(arr arrow.Array) []byte {
	switch a := arr.(type) {
	case *array.String:
		return a.ValueBytes()
	case *array.Binary:
		return a.ValueBytes()
	case *array.Int32, *array.Int64, *array.Uint32, *array.Uint64, *array.Float32, *array.Float64,
		*array.Date32, *array.Time64, *array.Timestamp, *array.FixedSizeBinary:
		n := arr.DataType().(arrow.FixedWidthDataType).Bytes()
		at := arr.Data().Offset()
		if buffer := arr.Data().Buffers()[1]; buffer != nil {
			return buffer.Bytes()[at*n : (at+arr.Len())*n]
		}
	}
	return nil
}

// wideValue is the length from which a text or bytes value is wide. The writer
// keeps copies of the least and the greatest value of each page and each row
// group, so statistics of wide values would take four times their size
// (invariant 11); and no reader skips rows by them.
const wideValue = 256 << 10

// wide tells whether a column holds a wide value.
func wide(arr arrow.Array) bool {
	var at []int32
	switch a := arr.(type) {
	case *array.String:
		at = a.ValueOffsets()
	case *array.Binary:
		at = a.ValueOffsets()
	}
	if len(at) == 0 || at[len(at)-1]-at[0] < wideValue {
		return false
	}
	for i := range len(at) - 1 {
		if at[i+1]-at[i] >= wideValue {
			return true
		}
	}
	return false
}

// deltaBits is the greatest width of differences between neighbours at which
// they are written instead of 64-bit values.
const deltaBits = 40

// rises tells whether neighbouring values of a 64-bit column lie close together,
// as ids and timestamps do: then their differences are written (delta encoding),
// which are smaller than what zstd makes of the values, and quicker.
func rises(arr arrow.Array) bool {
	switch arr.(type) {
	case *array.Int64, *array.Timestamp:
	default:
		return false
	}
	buffer := arr.Data().Buffers()[1]
	if buffer == nil || arr.Len() < 2 {
		return false
	}
	values := arrow.Int64Traits.CastFromBytes(buffer.Bytes())[arr.Data().Offset():][:arr.Len()]
	looked, width := 0, 0
	last, have := int64(0), false
	for i, v := range values[:min(len(values), sampleRows)] {
		if arr.IsNull(i) {
			continue
		}
		if have {
			d := v - last
			width += bits.Len64(uint64(d<<1 ^ d>>63))
			looked++
		}
		last, have = v, true
	}
	return looked > 0 && width <= deltaBits*looked
}
