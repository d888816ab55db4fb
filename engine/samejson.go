package engine

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// SameJSON compares two documents by value: a cursor or a descriptor that went
// through another store may come back with other spaces or escapes, and is still
// the same. Numbers are compared as they are written, so that none is rounded. An
// empty document equals only an empty one.
func SameJSON(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	x, errX := exactly(a)
	y, errY := exactly(b)
	if errX != nil || errY != nil {
		return bytes.Equal(a, b)
	}
	return reflect.DeepEqual(x, y)
}

func exactly(raw json.RawMessage) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}
