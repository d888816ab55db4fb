// Package memrow is the row format that the in-memory source and sink share: a
// row is the concatenation of its fields in canonical encoding, so that it can
// be cut, keyed and digested without decoding.
package memrow

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// Wire is the format's name in plans.
const Wire engine.WireFormat = "mem-canonical"

// Append appends a row of values: int64, string, []byte, bool, float64 or nil.
func Append(dst []byte, values []any) []byte {
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			dst = integrity.AppendNull(dst)
		case int64:
			dst = integrity.AppendInt(dst, v)
		case string:
			dst = integrity.AppendBytes(dst, v)
		case []byte:
			dst = integrity.AppendBytes(dst, v)
		case bool:
			dst = integrity.AppendBool(dst, v)
		case float64:
			dst = integrity.AppendFloat(dst, v)
		default:
			// The values are the test's own.
			panic(fmt.Sprintf("memrow: a value of type %T", v))
		}
	}
	return dst
}

// Cut returns the first row of n fields and the rest.
func Cut(wire []byte, n int) (row, rest []byte, err error) {
	at := 0
	for range n {
		if len(wire) < at+4 {
			return nil, nil, fmt.Errorf("row of %d fields is cut off after %d bytes", n, len(wire))
		}
		size := int32(binary.BigEndian.Uint32(wire[at:]))
		at += 4
		if size > 0 {
			at += int(size)
		}
		if at > len(wire) {
			return nil, nil, fmt.Errorf("row of %d fields is cut off after %d bytes", n, len(wire))
		}
	}
	return wire[:at:at], wire[at:], nil
}

// Field returns the i-th field of a row, its length included.
func Field(row []byte, i int) []byte {
	for {
		end := 4
		if size := int32(binary.BigEndian.Uint32(row)); size > 0 {
			end += int(size)
		}
		if i == 0 {
			return row[:end]
		}
		row = row[end:]
		i--
	}
}

// Pick returns the concatenation of some of a row's fields: a key.
func Pick(row []byte, fields []int) string {
	var key []byte
	for _, i := range fields {
		key = append(key, Field(row, i)...)
	}
	return string(key)
}

// Int returns the value of an integer field; false if it is NULL.
func Int(field []byte) (int64, bool) {
	if len(field) < 12 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(field[4:])), true
}

// ID is the remembered identity of a row in a window: a hash of key and cursor.
func ID(key string, cursor []byte) engine.RowID {
	h := xxh3.Hash128Seed(append([]byte(key), cursor...), integrity.Seed)
	var id engine.RowID
	binary.BigEndian.PutUint64(id[:8], h.Hi)
	binary.BigEndian.PutUint64(id[8:], h.Lo)
	return id
}
