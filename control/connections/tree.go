package connections

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// readTree decodes a configuration: a JSON object, or nothing.
func readTree(config []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(config)) == 0 || string(bytes.TrimSpace(config)) == "null" {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(config))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil || out == nil {
		return nil, errors.New("want a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return out, nil
}

// lookUp finds the value at a path of keys with dots between.
func lookUp(tree map[string]any, path string) (any, bool) {
	key, rest, deeper := strings.Cut(path, ".")
	v, ok := tree[key]
	if !ok || !deeper {
		return v, ok
	}
	below, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	return lookUp(below, rest)
}

func drop(tree map[string]any, path string) {
	key, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		delete(tree, key)
		return
	}
	if below, ok := tree[key].(map[string]any); ok {
		drop(below, rest)
	}
}

func set(tree map[string]any, path string, value any) error {
	key, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		tree[key] = value
		return nil
	}
	if tree[key] == nil {
		tree[key] = map[string]any{}
	}
	below, ok := tree[key].(map[string]any)
	if !ok {
		return fmt.Errorf("%s is not a mapping of keys", key)
	}
	return set(below, rest, value)
}

// texts yields every text of a tree by its path.
func texts(v any, path string) map[string]string {
	out := map[string]string{}
	switch v := v.(type) {
	case string:
		out[path] = v
	case []any:
		for i, x := range v {
			maps.Copy(out, texts(x, fmt.Sprintf("%s[%d]", path, i)))
		}
	case map[string]any:
		for k, x := range v {
			maps.Copy(out, texts(x, strings.TrimPrefix(path+"."+k, ".")))
		}
	}
	return out
}

// merge puts an overlay over a configuration by the rules of RFC 7396: null takes
// a key away.
func merge(into, overlay map[string]any) {
	for k, v := range overlay {
		switch v := v.(type) {
		case nil:
			delete(into, k)
		case map[string]any:
			below, ok := into[k].(map[string]any)
			if !ok {
				below = map[string]any{}
				into[k] = below
			}
			merge(below, v)
		default:
			into[k] = v
		}
	}
}

// literal makes every text of a tree stand for itself in a document.
func literal(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "${", "$${")
	case []any:
		for i := range v {
			v[i] = literal(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = literal(v[k])
		}
	}
	return v
}

// assemble writes a configuration with its secret fields filled in.
func assemble(tree map[string]any, fields map[string]string) ([]byte, error) {
	literal(tree)
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if err := set(tree, path, fields[path]); err != nil {
			return nil, err
		}
	}
	out, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return out, nil
}
