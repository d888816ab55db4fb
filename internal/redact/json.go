package redact

import (
	"bytes"
	"encoding/json"
)

// prose are the keys whose values, texts or lists of them, are written for people.
// The others are names, numbers and positions that programs go on by, and that no
// message gets into.
var prose = map[string]bool{
	"error": true, "hint": true, "reason": true, "statement": true, "message": true,
	"statements": true, "warnings": true, "coverage": true,
}

// JSON returns a document without secrets in its prose. It returns body itself
// where there is nothing to replace, or where it is no JSON.
func (r *Redactor) JSON(body []byte) []byte {
	if bytes.Equal(r.Clean(body), body) {
		return body
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return body
	}
	if !r.walk(v) {
		return body
	}
	out, err := json.Marshal(v)
	if err != nil {
		return body
	}
	return out
}

// walk cleans a value in place and tells whether anything was replaced.
func (r *Redactor) walk(v any) (changed bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if text, ok := x.(string); ok && prose[k] {
				if clean := r.Text(text); clean != text {
					v[k], changed = clean, true
				}
				continue
			}
			if list, ok := x.([]any); ok && prose[k] {
				changed = r.texts(list) || changed
				continue
			}
			changed = r.walk(x) || changed
		}
	case []any:
		for _, x := range v {
			changed = r.walk(x) || changed
		}
	}
	return changed
}

// texts cleans the texts of a list in place.
func (r *Redactor) texts(list []any) (changed bool) {
	for i, x := range list {
		text, ok := x.(string)
		if !ok {
			changed = r.walk(x) || changed
			continue
		}
		if clean := r.Text(text); clean != text {
			list[i], changed = clean, true
		}
	}
	return changed
}
