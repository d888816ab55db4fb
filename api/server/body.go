package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/tranship-io/tranship/control"
)

// maxDepth bounds how deep a body nests.
const maxDepth = 64

// body is a request's body after the checks: the generated code takes the value.
type body struct {
	*bytes.Reader
	value any
}

// ValidatedValue hands the checked value to the generated code, which then matches
// names of fields exactly.
func (b *body) ValidatedValue() any { return b.value }

// Close implements io.Closer.
func (b *body) Close() error { return nil }

// readBody checks the body of a request and puts the checked one in its place. It
// returns the bytes.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, route *route) ([]byte, error) {
	limited := http.MaxBytesReader(w, r.Body, h.config.MaxBody)
	text, err := io.ReadAll(limited)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &tooLargeError{limit: large.Limit}
	case err != nil:
		return nil, &requestError{fmt.Errorf("the body ended early: %w", err)}
	}
	if route.body == nil {
		if len(bytes.TrimSpace(text)) > 0 {
			return nil, &requestError{errors.New("this operation takes no body")}
		}
		r.Body = http.NoBody
		return nil, nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, errMediaType
	}
	value, err := parseJSON(text)
	if err != nil {
		return nil, &requestError{err}
	}
	if err := route.body.Validate(value); err != nil {
		return nil, &control.InvalidError{Problems: problemsOf(err)}
	}
	r.Body = &body{bytes.NewReader(text), value}
	return text, nil
}

// parseJSON reads one JSON value and refuses what other readers would take in
// another way: a field twice, data behind the value, text that is not UTF-8 or
// that holds NUL, which the database cannot store.
func parseJSON(text []byte) (any, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("the body is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	value, err := parseValue(d, 0)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.New("the body ends before its JSON does")
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return nil, fmt.Errorf("the body is not JSON from byte %d on", syntax.Offset)
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("there is more behind the JSON, from byte %d on", d.InputOffset())
	}
	return value, nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("the body nests deeper than %d", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case string:
		return t, noNUL(t)
	case json.Delim:
		if t == '{' {
			return parseObject(d, depth)
		}
		out := []any{}
		for d.More() {
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err := d.Token()
		return out, err
	}
	return token, nil
}

func parseObject(d *json.Decoder, depth int) (any, error) {
	out := map[string]any{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, errors.New("the name of a field is not text")
		}
		if err := noNUL(key); err != nil {
			return nil, err
		}
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("the field %q is there twice", printable(key))
		}
		if out[key], err = parseValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return out, err
}

func noNUL(s string) error {
	if strings.ContainsRune(s, 0) {
		return errors.New("a text holds the character U+0000")
	}
	return nil
}

// marshal writes a value with the fields of objects in order.
func marshal(value any) ([]byte, error) {
	out, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return out, nil
}
