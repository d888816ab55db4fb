package engine_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

func TestSameJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"at": "<1>"}`, `{"at":"\u003c1\u003e"}`, true},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true},
		{`12345678901234567890`, `12345678901234567891`, false},
		{`1.10`, `1.1`, false},
		{`[1,2]`, `[2,1]`, false},
		{``, ``, true},
		{``, `null`, false},
		{`no json`, `no json`, true},
		{`no json`, `1`, false},
	} {
		require.Equal(t, c.same, engine.SameJSON(json.RawMessage(c.a), json.RawMessage(c.b)), "%s and %s", c.a, c.b)
	}
}
