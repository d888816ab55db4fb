package integrity_test

import (
	"encoding/binary"
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

func TestDecimalPayload(t *testing.T) {
	for text, want := range map[string]string{
		"0":            "00 0000 0000",
		"-0.000":       "00 0000 0000",
		"1":            "00 0000 0001 0001",
		"+1.50":        "00 0000 0002 0001 1388",
		"-1.5":         "01 0000 0002 0001 1388",
		"10000":        "00 0001 0001 0001",
		"0.0001":       "00 ffff 0001 0001",
		"1e-8":         "00 fffe 0001 0001",
		"12345.678":    "00 0001 0003 0001 0929 1a7c",
		".5":           "00 ffff 0001 1388",
		"5.":           "00 0000 0001 0005",
		"NaN":          "02 0000 0000",
		"Infinity":     "03 0000 0000",
		"-Infinity":    "04 0000 0000",
		"-inf":         "04 0000 0000",
		"100000000e-4": "00 0001 0001 0001",
	} {
		got, err := integrity.AppendDecimalText(nil, text)
		require.NoError(t, err, text)
		require.Equal(t, strings.ReplaceAll(want, " ", ""), hexOf(got), text)
	}
	for _, bad := range []string{"", "-", ".", "1,5", "1e", "1e+", "e5", "--1", "0x10", "1 ", "-nan", "infinite", "1e99999999", "é"} {
		_, err := integrity.AppendDecimalText(nil, bad)
		require.Error(t, err, bad)
	}
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

func TestDecimalSentinels(t *testing.T) {
	for _, c := range []struct {
		d128 decimal128.Num
		d256 decimal256.Num
		sign byte
	}{
		{schema.DecimalNaN, schema.Decimal256NaN, integrity.DecimalNaN},
		{schema.DecimalPosInf, schema.Decimal256PosInf, integrity.DecimalPosInf},
		{schema.DecimalNegInf, schema.Decimal256NegInf, integrity.DecimalNegInf},
	} {
		a, err := integrity.AppendDecimal128(nil, c.d128, 2)
		require.NoError(t, err)
		b, err := integrity.AppendDecimal256(nil, c.d256, 40)
		require.NoError(t, err)
		require.Equal(t, []byte{c.sign, 0, 0, 0, 0}, a)
		require.Equal(t, a, b)
	}
}

// value reads a canonical payload back with exact arithmetic.
func value(p []byte) *big.Rat {
	weight := int(int16(binary.BigEndian.Uint16(p[1:])))
	r, group := new(big.Rat), new(big.Rat)
	for i := range int(binary.BigEndian.Uint16(p[3:])) {
		group.SetInt64(int64(binary.BigEndian.Uint16(p[5+2*i:])))
		scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10000), big.NewInt(int64(max(weight-i, i-weight))), nil))
		if weight-i < 0 {
			scale.Inv(scale)
		}
		r.Add(r, group.Mul(group, scale))
	}
	if p[0] == integrity.DecimalNegative {
		r.Neg(r)
	}
	return r
}

func FuzzDecimalText(f *testing.F) {
	for _, s := range []string{"0", "-1.50", "1e-7", "Infinity", "NaN", "00012345678901234567890.000100", "1e30", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := integrity.AppendDecimalText(nil, s)
		if err != nil || p[0] > integrity.DecimalNegative || len(s) > 200 {
			return
		}
		if i := strings.IndexAny(s, "eE"); i >= 0 && len(s)-i > 5 {
			return
		}
		want, ok := new(big.Rat).SetString(s)
		require.True(t, ok, s)
		require.Zero(t, want.Cmp(value(p)), "%s gives %x", s, p)
	})
}

func FuzzDecimal128(f *testing.F) {
	f.Add(int64(0), uint64(1), uint8(0))
	f.Add(int64(-1), uint64(0), uint8(38))
	f.Add(int64(5421010862427522170), uint64(687399551400673279), uint8(3))
	f.Fuzz(func(t *testing.T, hi int64, lo uint64, scale uint8) {
		v := decimal128.New(hi, lo)
		if v == schema.DecimalNaN || v == schema.DecimalPosInf || v == schema.DecimalNegInf {
			return
		}
		p, err := integrity.AppendDecimal128(nil, v, int32(scale%39))
		require.NoError(t, err)
		want := new(big.Rat).SetFrac(v.BigInt(), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale%39)), nil))
		require.Zero(t, want.Cmp(value(p)))
		q, err := integrity.AppendDecimal256(nil, decimal256.FromDecimal128(v), int32(scale%39))
		require.NoError(t, err)
		require.Equal(t, p, q)
	})
}

func TestCanonicalJSON(t *testing.T) {
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for in, want := range map[string]string{
		` { "b" : 1 , "a" : [ ] } `:           `{"a":[],"b":1}`,
		`{"aa":1,"b":2,"a":3,"b":null}`:       `{"a":3,"b":null,"aa":1}`,
		`{"b":{"z":1,"y":2},"a":{"d":0}}`:     `{"a":{"d":0},"b":{"y":2,"z":1}}`,
		`[1.50,100,-0,0.0,-0.050,1E+2,10e-1]`: `[15e-1,1e2,0,0,-5e-2,1e2,1]`,
		`9007199254740993`:                    `9007199254740993`,
		`123456789012345678901234567890.5`:    `1234567890123456789012345678905e-1`,
		`1e400000`:                            `1e400000`,
		`"\u0041\/\n\u000A\u001F\u00e9\""`:    `"A/\n\n\u001fé\""`,
		`"\ud83d\ude00 \ud83d x \ude00"`:      `"😀 \ud83d x \ude00"`,
		`"\u0000"`:                            `"\u0000"`,
		`"\\u0000"`:                           `"\\u0000"`,
		`"\ud83d\u0041"`:                      `"\ud83dA"`,
		`[true,false,null]`:                   `[true,false,null]`,
		deep:                                  deep,
	} {
		var c integrity.Canonicalizer
		got, err := c.Append(nil, []byte(in))
		require.NoError(t, err, in)
		require.Equal(t, want, string(got))
	}
	for _, bad := range []string{"", " ", "{", `{"a"}`, `{"a":1,}`, `[1,]`, `[1 2]`, "01", "1.", "-", ".5", "1e", "+1", "tru",
		`"a`, `"\x"`, `"\u12"`, "\"\n\"", `{a:1}`, `1 2`, `'a'`, "NaN", strings.Repeat("[", 20000), `1e99999999999999999999`} {
		var c integrity.Canonicalizer
		_, err := c.Append(nil, []byte(bad))
		require.Error(t, err, "%.40s", bad)
	}
}

// Whatever encoding/json accepts is accepted, and writing it another way gives
// the same canonical form; what comes out is stable.
func FuzzCanonicalJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.50,"x\u00e9"],"b":{}}`, `{"b":1,"a":2,"b":3}`, `"\ud800"`, `-0.0e5`, `[[[{}]]]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var c integrity.Canonicalizer
		out, err := c.Append(nil, in)
		if err != nil {
			return
		}
		require.True(t, json.Valid(in), "%q", in)
		require.True(t, json.Valid(out), "%q", out)
		again, err := c.Append(nil, out)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
		var spaced strings.Builder
		var indented = json.NewEncoder(&spaced)
		indented.SetIndent(" ", "\t")
		if indented.Encode(json.RawMessage(in)) == nil {
			again, err = c.Append(nil, []byte(spaced.String()))
			require.NoError(t, err)
			require.Equal(t, string(out), string(again))
		}
	})
}

func FuzzParseDigest(f *testing.F) {
	f.Add(integrity.Digest{Hi: 1, Lo: 2}.String())
	f.Add("xxh3-128-sum:zz")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := integrity.ParseDigest(s)
		if err != nil {
			return
		}
		require.Equal(t, strings.ToLower(s), d.String())
		var back integrity.Digest
		b, err := json.Marshal(d)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, d, back)
	})
}

func TestDigestIsASum(t *testing.T) {
	var a, b, twice integrity.Digest
	a.AddRow([]byte("x"))
	a.AddRow([]byte("y"))
	b.AddRow([]byte("y"))
	b.AddRow([]byte("x"))
	require.Equal(t, a, b, "order means nothing")
	twice.AddRow([]byte("x"))
	twice.AddRow([]byte("x"))
	require.NotEqual(t, integrity.Digest{}, twice, "equal rows don't cancel")
	a.Sub(b)
	require.Equal(t, integrity.Digest{}, a)
}
