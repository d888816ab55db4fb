package redact

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJSON(t *testing.T) {
	r := &Redactor{}
	r.Add("s3cr&t", "1000", "orders")
	for _, c := range []struct{ name, in, out string }{
		{"a message", `{"error":"dial u:s3cr&t@h: no","rows":5}`, `{"error":"dial u:***@h: no","rows":5}`},
		{"escaped", `{"error":"dial u:s3cr\u0026t@h"}`, `{"error":"dial u:***@h"}`},
		{"deep", `{"resources":[{"hint":"use s3cr&t","n":12345678901234567890}]}`, `{"resources":[{"hint":"use ***","n":12345678901234567890}]}`},
		{"lists", `{"warnings":["use s3cr&t","no"],"splits":["orders"]}`, `{"splits":["orders"],"warnings":["use ***","no"]}`},
		{"numbers and names stay", `{"rows":1000,"resource":"orders","last":"1000"}`, `{"rows":1000,"resource":"orders","last":"1000"}`},
		{"nothing to do", `{ "error": "x" }`, `{ "error": "x" }`},
		{"no JSON", `{"error":"s3cr&t`, `{"error":"s3cr&t`},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.out, string(r.JSON([]byte(c.in)))) })
	}
}

func TestLogger(t *testing.T) {
	r := &Redactor{}
	r.Add("s3cret")
	var out bytes.Buffer
	log := r.Logger(slog.New(slog.NewJSONHandler(&out, nil))).With("url", "u:s3cret@h").WithGroup("g").With("n", 7)
	log.Warn("dial s3cret", "error", fmt.Errorf("x: %w", errors.New("s3cret")), slog.Group("in", "deep", "s3cret"), "list", []string{"s3cret"})
	require.NotContains(t, out.String(), "s3cret")
	require.Contains(t, out.String(), `"n":7`)
	require.Contains(t, out.String(), "dial ***")
}

func TestError(t *testing.T) {
	r := &Redactor{}
	r.Add("s3cret")
	plain := errors.New("no")
	require.Equal(t, plain, r.Error(plain))
	require.EqualError(t, r.Error(fmt.Errorf("dial s3cret: %w", plain)), "dial ***: no")
	require.NoError(t, r.Error(nil))
}
