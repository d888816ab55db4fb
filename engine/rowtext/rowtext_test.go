package rowtext

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine/schema"
)

func typ(k schema.Kind) schema.Type { return schema.Type{Kind: k} }

func digits(k schema.Kind, n int) schema.Type { return schema.Type{Kind: k, Digits: n} }

func dec(p, s int) schema.Type { return schema.Type{Kind: schema.Decimal, Precision: p, Scale: s} }

func listOf(e schema.Type) schema.Type { return schema.Type{Kind: schema.Array, Elem: &e} }

// build makes an array of one value from its text.
func build(t testing.TB, ty schema.Type, text string) (arrow.Array, error) {
	t.Helper()
	b := array.NewBuilder(memory.DefaultAllocator, ty.Arrow())
	defer b.Release()
	if err := ParseText(b, ty, text); err != nil {
		return nil, err
	}
	return b.NewArray(), nil
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ        schema.Type
		text, json string
	}{
		{typ(schema.Bool), "true", "true"},
		{typ(schema.Int8), "-128", "-128"},
		{typ(schema.Uint64), "18446744073709551615", "18446744073709551615"},
		{typ(schema.Float64), "0.1", "0.1"},
		{typ(schema.Float64), "-0", "-0"},
		{typ(schema.Float64), "1e+300", "1e+300"},
		{typ(schema.Float64), "NaN", `"NaN"`},
		{typ(schema.Float32), "-Infinity", `"-Infinity"`},
		{dec(12, 2), "1234567890.12", "1234567890.12"},
		{dec(12, 2), "-0.01", "-0.01"},
		{dec(12, 2), "0.00", "0.00"},
		{dec(38, 0), "-99999999999999999999999999999999999999", "-99999999999999999999999999999999999999"},
		{dec(38, 30), "0.000000000000000000000000000001", "0.000000000000000000000000000001"},
		{dec(18, 0), "-9223372036854775808", "-9223372036854775808"},
		{dec(20, 0), "18446744073709551615", "18446744073709551615"},
		{dec(38, 2), "NaN", `"NaN"`},
		{dec(38, 2), "Infinity", `"Infinity"`},
		{dec(76, 2), "-Infinity", `"-Infinity"`},
		{dec(0, 0), "0.1234567890123456789012345678", "0.1234567890123456789012345678"},
		{typ(schema.String), "a\"b\\\n\t\x00é", `"a\"b\\\n\t\u0000é"`},
		{typ(schema.Bytes), "AP8Q", `"AP8Q"`},
		{typ(schema.Date), "0000-02-29", `"0000-02-29"`},
		{typ(schema.Date), "-4712-01-01", `"-4712-01-01"`},
		{typ(schema.Date), "+5874897-12-31", `"+5874897-12-31"`},
		{typ(schema.Date), "infinity", `"infinity"`},
		{digits(schema.Time, 6), "24:00:00", `"24:00:00"`},
		{digits(schema.Time, 9), "00:00:00.000000001", `"00:00:00.000000001"`},
		{digits(schema.Timestamp, 6), "1969-12-31T23:59:59.999999", `"1969-12-31T23:59:59.999999"`},
		{digits(schema.Timestamp, 6), "-4712-01-01T00:00:00", `"-4712-01-01T00:00:00"`},
		{digits(schema.Timestamp, 9), "1677-09-21T00:12:43.145224193", `"1677-09-21T00:12:43.145224193"`},
		{digits(schema.TimestampTZ, 6), "2024-05-09T13:28:27.031153Z", `"2024-05-09T13:28:27.031153Z"`},
		{digits(schema.TimestampTZ, 6), "-infinity", `"-infinity"`},
		{typ(schema.Interval), "P1Y2M-3DT3H55M6.7S", `"P1Y2M-3DT3H55M6.7S"`},
		{typ(schema.Interval), "P-1Y-1MT-0.000001S", `"P-1Y-1MT-0.000001S"`},
		{typ(schema.Interval), "PT0S", `"PT0S"`},
		{typ(schema.JSONB), `{"a":1}`, `{"a":1}`},
		{typ(schema.UUID), "f47ac10b-58cc-4372-a567-0e02b2c3d479", `"f47ac10b-58cc-4372-a567-0e02b2c3d479"`},
		{listOf(typ(schema.Int32)), "[]", "[]"},
		{listOf(typ(schema.Int32)), "[1,null,3]", "[1,null,3]"},
		{listOf(typ(schema.Int32)), "[[1,2],[3,null]]", "[[1,2],[3,null]]"},
		{listOf(typ(schema.Int32)), `{"lower":[0,-1],"values":[[1,2]]}`, `{"lower":[0,-1],"values":[[1,2]]}`},
		{listOf(typ(schema.Float64)), `["NaN",0.5]`, `["NaN",0.5]`},
		{listOf(typ(schema.JSONB)), `["[1,2]","null",null]`, `["[1,2]","null",null]`},
		{listOf(typ(schema.String)), `["a,b","NULL",null,"say \"hi\"","","\\"]`, `["a,b","NULL",null,"say \"hi\"","","\\"]`},
	} {
		t.Run(fmt.Sprintf("%s %.30q", c.typ, c.text), func(t *testing.T) {
			t.Parallel()
			arr, err := build(t, c.typ, c.text)
			require.NoError(t, err)
			defer arr.Release()
			write, err := Text(c.typ, arr)
			require.NoError(t, err)
			require.Equal(t, c.text, string(write(nil, 0)))
			write, err = JSON(c.typ, arr)
			require.NoError(t, err)
			got := string(write(nil, 0))
			require.Equal(t, c.json, got)
			require.True(t, json.Valid([]byte(got)))
			b := array.NewBuilder(memory.DefaultAllocator, c.typ.Arrow())
			defer b.Release()
			require.NoError(t, ParseJSON(b, c.typ, []byte(got)))
			back := b.NewArray()
			defer back.Release()
			require.True(t, array.Equal(arr, back) || c.text == "NaN" || c.typ.Kind == schema.Array, "%s and %s", arr, back)
			write, err = Text(c.typ, back)
			require.NoError(t, err)
			require.Equal(t, c.text, string(write(nil, 0)))
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ  schema.Type
		text string
	}{
		{typ(schema.Bool), "t"}, {typ(schema.Int8), "128"}, {typ(schema.Uint8), "-1"}, {typ(schema.Int64), "1.0"},
		{typ(schema.Float64), "0x1p3"}, {typ(schema.Float64), "inf"},
		{dec(4, 2), "1.234"}, {dec(4, 2), "1e99999999"}, {dec(38, 0), "1" + string(make([]byte, 50))},
		{typ(schema.Date), "2024-02-30"}, {typ(schema.Date), "24-02-03"}, {typ(schema.Date), "2024-1-01"},
		{digits(schema.Time, 6), "25:00:00"}, {digits(schema.Time, 6), "10:00:00.0000001"}, {digits(schema.Time, 6), "24:00:01"},
		{digits(schema.Timestamp, 6), "2024-01-02 03:04:05"}, {digits(schema.TimestampTZ, 6), "2024-01-02T03:04:05"},
		{digits(schema.Timestamp, 9), "2262-04-12T00:00:00"}, {digits(schema.Timestamp, 9), "1677-09-21T00:12:43"},
		{typ(schema.Interval), "P"}, {typ(schema.Interval), "P1H"}, {typ(schema.Interval), "PT1.5H"},
		{typ(schema.UUID), "x"}, {typ(schema.Bytes), "%"},
		{listOf(typ(schema.Int32)), "[[1],[2,3]]"}, {listOf(typ(schema.Int32)), "[1,[2]]"}, {listOf(typ(schema.Int32)), "[[1],2]"},
		{listOf(typ(schema.Int32)), `{"lower":[1],"values":[[1]]}`}, {listOf(typ(schema.Int32)), `["1"]`}, {listOf(typ(schema.String)), `[1]`},
	} {
		_, err := build(t, c.typ, c.text)
		require.Error(t, err, "%s %q", c.typ, c.text)
	}
}

// FuzzTimestamp: every number of microseconds or nanoseconds reads back.
func FuzzTimestamp(f *testing.F) {
	for _, v := range []int64{0, 1, -1, math.MaxInt64 - 1, math.MinInt64 + 1, 951782400000000, -62135596800000000} {
		f.Add(v, true)
		f.Add(v, false)
	}
	f.Fuzz(func(t *testing.T, v int64, nanos bool) {
		text := string(appendTimestamp(nil, v, nanos, true))
		got, err := parseTimestamp(text, nanos, true)
		require.NoError(t, err, text)
		require.Equal(t, v, got, text)
		days := int32(v)
		d, err := parseDate(string(appendDate(nil, days)))
		require.NoError(t, err)
		require.Equal(t, days, d)
		iv := arrow.MonthDayNanoInterval{Months: int32(v), Days: int32(v >> 32), Nanoseconds: v}
		back, err := parseInterval(string(appendInterval(nil, iv)))
		require.NoError(t, err, string(appendInterval(nil, iv)))
		require.Equal(t, iv, back)
	})
}

// FuzzParse: text from anywhere is read or refused, and what is read writes a
// text that reads back as the same.
func FuzzParse(f *testing.F) {
	kinds := []schema.Type{
		typ(schema.Int64), typ(schema.Float64), dec(38, 10), dec(76, 10), typ(schema.Date), digits(schema.Time, 9),
		digits(schema.Timestamp, 6), digits(schema.TimestampTZ, 9), typ(schema.Interval), typ(schema.UUID),
		listOf(typ(schema.Int32)), listOf(typ(schema.String)), listOf(digits(schema.Timestamp, 6)),
	}
	for i := range kinds {
		for _, s := range []string{"1", "2024-01-02", "12:00:00", "P1Y", "[1,null]", `{"lower":[0],"values":["x"]}`, "1e5"} {
			f.Add(i, s)
		}
	}
	f.Fuzz(func(t *testing.T, k int, s string) {
		ty := kinds[((k%len(kinds))+len(kinds))%len(kinds)]
		arr, err := build(t, ty, s)
		if err != nil {
			return
		}
		defer arr.Release()
		write, err := Text(ty, arr)
		require.NoError(t, err)
		text := string(write(nil, 0))
		again, err := build(t, ty, text)
		require.NoError(t, err, "%s: %q was written as %q", ty, s, text)
		defer again.Release()
		write, err = Text(ty, again)
		require.NoError(t, err)
		require.Equal(t, text, string(write(nil, 0)))
	})
}
