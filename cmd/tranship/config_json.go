package main

import (
	"bytes"
	"encoding/json"
)

// orderedConfig is a connector's configuration with its keys in order.
type orderedConfig struct{ keys, values [][]byte }

// add takes a value as the user wrote it; numbers and truth values stay such
// where the key wants them.
func (c *orderedConfig) add(key, value, typ string) {
	raw := []byte(value)
	if !(typ == "integer" || typ == "number" || typ == "boolean") || !json.Valid(raw) {
		raw = quoted(value)
	}
	c.keys, c.values = append(c.keys, quoted(key)), append(c.values, raw)
}

func quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`)
	}
	return b
}

func (c *orderedConfig) json() []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range c.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(c.keys[i])
		b.WriteByte(':')
		b.Write(c.values[i])
	}
	b.WriteByte('}')
	return b.Bytes()
}
