package pipeline

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// field is one key that a configuration struct knows.
type field struct {
	key      string
	index    []int
	typ      reflect.Type
	required bool
	secret   bool
	enum     []string
	minimum  *float64
	maximum  *float64
}

// fieldsOf lists the keys of a struct as encoding/json sees them, embedded
// structs flattened, with what the jsonschema tags say.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for _, f := range reflect.VisibleFields(t) {
		if !f.IsExported() || f.Anonymous && f.Tag.Get("json") == "" {
			continue
		}
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "-" {
			continue
		}
		if key == "" {
			key = f.Name
		}
		d := field{key: key, index: f.Index, typ: f.Type, secret: f.Tag.Get("secret") == "true"}
		for _, part := range strings.Split(f.Tag.Get("jsonschema"), ",") {
			name, value, _ := strings.Cut(part, "=")
			switch name {
			case "required":
				d.required = true
			case "enum":
				d.enum = append(d.enum, value)
			case "minimum", "maximum":
				n, err := strconv.ParseFloat(value, 64)
				if err == nil && name == "minimum" {
					d.minimum = &n
				} else if err == nil {
					d.maximum = &n
				}
			}
		}
		out = append(out, d)
	}
	return out
}

// decoder fills Go values from nodes, strictly, and goes on after a problem so
// that all of them are reported at once.
type decoder struct {
	*reader
	secrets *[]string
	// literal values hold no references: ${ in them is text.
	literal bool
}

func (d *decoder) problem(n *node, hint, format string, args ...any) {
	d.add(n.line, n.column, n.path, hint, format, args...)
}

// structOf fills v from a mapping. skip are keys that belong to somebody else.
func (d *decoder) structOf(n *node, v reflect.Value, skip ...string) {
	if n.kind != kindMap {
		d.problem(n, "", "want a mapping of keys, not %s", n.kind)
		return
	}
	fields := fieldsOf(v.Type())
	known := make([]string, 0, len(fields)+len(skip))
	for _, f := range fields {
		known = append(known, f.key)
	}
	known = append(known, skip...)
	for _, e := range n.entries {
		if slices.Contains(skip, e.key) {
			continue
		}
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == e.key })
		if i < 0 {
			hint := "known here: " + strings.Join(known, ", ")
			if near := nearest(e.key, known); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			d.add(e.line, e.column, e.value.path, hint, "unknown key %q", e.key)
			continue
		}
		target, err := v.FieldByIndexErr(fields[i].index)
		if err != nil {
			target = allocate(v, fields[i].index)
		}
		d.value(e.value, target, &fields[i])
	}
	for _, f := range fields {
		got := n.get(f.key)
		if f.required && (got == nil || got.kind == kindNull) {
			d.problem(n, "", "the key %q is missing", f.key)
		}
	}
}

// allocate walks to a field through embedded pointers, making them.
func allocate(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

var rawMessage = reflect.TypeFor[json.RawMessage]()

func (d *decoder) value(n *node, v reflect.Value, f *field) {
	if f.secret && n.kind < kindList && n.value != "" {
		*d.secrets = append(*d.secrets, n.value)
		*d.secrets = append(*d.secrets, passwordsOf(n.value)...)
	}
	if n.kind == kindNull && v.Kind() == reflect.String && slices.Contains(f.enum, nullWord) {
		// The policy null is a word that YAML reads as nothing: taken as nothing it
		// would silently be another policy.
		if n.raw != nullWord {
			d.problem(n, "possible: "+strings.Join(f.enum, ", "), "there is no value")
			return
		}
		n.kind, n.value = kindString, nullWord
	}
	if n.kind == kindNull {
		return
	}
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		d.value(n, p.Elem(), f)
		v.Set(p)
		return
	}
	if v.Type() == rawMessage {
		v.SetBytes(n.json(true))
		return
	}
	if v.CanAddr() && d.custom(n, v.Addr().Interface()) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structOf(n, v)
	case reflect.Interface:
		var x any
		if err := json.Unmarshal(n.json(true), &x); err == nil {
			v.Set(reflect.ValueOf(x))
		}
	case reflect.Slice:
		d.list(n, v, f)
	case reflect.Map:
		d.mapping(n, v, f)
	default:
		d.scalar(n, v, f)
	}
}

// refers tells whether a value holds a reference that nobody replaced.
func (d *decoder) refers(n *node) bool {
	return !d.literal && n.kind == kindString && strings.Contains(n.value, "${")
}

// custom lets a type read itself. Errors of such types may quote the value, so
// a value that came from the environment is not repeated (invariant 10).
func (d *decoder) custom(n *node, target any) bool {
	var err error
	unresolved := d.refers(n)
	switch u := target.(type) {
	case json.Unmarshaler:
		if unresolved {
			return true
		}
		err = u.UnmarshalJSON(n.json(true))
	case encoding.TextUnmarshaler:
		if n.kind >= kindList {
			d.problem(n, "", "want text, not %s", n.kind)
			return true
		}
		if unresolved {
			return true
		}
		err = u.UnmarshalText([]byte(n.value))
	default:
		return false
	}
	switch {
	case err == nil:
	case n.fromEnv:
		d.problem(n, "", "the value of %s does not fit here", n.raw)
	default:
		d.problem(n, "", "%v", err)
	}
	return true
}

func (d *decoder) list(n *node, v reflect.Value, f *field) {
	if n.kind != kindList {
		d.problem(n, "write it as [ … ]", "want a list, not %s", n.kind)
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		d.value(item, out.Index(i), f)
	}
	v.Set(out)
}

func (d *decoder) mapping(n *node, v reflect.Value, f *field) {
	if n.kind != kindMap {
		d.problem(n, "", "want a mapping of keys, not %s", n.kind)
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.entries))
	for _, e := range n.entries {
		x := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, x, f)
		out.SetMapIndex(reflect.ValueOf(e.key).Convert(v.Type().Key()), x)
	}
	v.Set(out)
}

func (d *decoder) scalar(n *node, v reflect.Value, f *field) {
	if n.kind >= kindList {
		d.problem(n, "", "want one value, not %s", n.kind)
		return
	}
	if d.refers(n) && v.Kind() != reflect.String {
		return // a reference that nobody replaced: its value is not known yet
	}
	switch v.Kind() {
	case reflect.String:
		if n.kind == kindBool {
			d.problem(n, "put it in quotes if text is meant", "want text, not %s", n.raw)
			return
		}
		if d.checkEnum(n, f) {
			v.SetString(n.value)
		}
	case reflect.Bool:
		b, err := strconv.ParseBool(n.value)
		if err != nil || !(n.kind == kindBool || n.fromEnv) {
			d.problem(n, "", "want true or false, not %s", n.shown())
			return
		}
		v.SetBool(b)
		n.kind = kindBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i, err := strconv.ParseInt(n.value, 10, v.Type().Bits())
		if err != nil || !(n.kind == kindInt || n.fromEnv) {
			d.problem(n, "", "want a whole number, not %s", n.shown())
			return
		}
		v.SetInt(i)
		n.kind, n.value = kindInt, strconv.FormatInt(i, 10)
		d.checkRange(n, f, float64(i))
		d.checkEnum(n, f)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		i, err := strconv.ParseUint(n.value, 10, v.Type().Bits())
		if err != nil || !(n.kind == kindInt || n.fromEnv) {
			d.problem(n, "", "want a whole number of 0 or more, not %s", n.shown())
			return
		}
		v.SetUint(i)
		n.kind, n.value = kindInt, strconv.FormatUint(i, 10)
		d.checkRange(n, f, float64(i))
	case reflect.Float32, reflect.Float64:
		x, err := strconv.ParseFloat(n.value, v.Type().Bits())
		if err != nil || !(n.kind == kindInt || n.kind == kindFloat || n.fromEnv) {
			d.problem(n, "", "want a number, not %s", n.shown())
			return
		}
		v.SetFloat(x)
		n.kind = kindFloat
		d.checkRange(n, f, x)
	default:
		d.problem(n, "", "this key cannot be set from a document")
	}
}

// checkEnum tells whether the value is one that the field admits.
func (d *decoder) checkEnum(n *node, f *field) bool {
	if len(f.enum) == 0 || n.value == "" || d.refers(n) || slices.Contains(f.enum, n.value) {
		return true
	}
	hint := "possible: " + strings.Join(f.enum, ", ")
	if near := nearest(n.value, f.enum); near != "" && !n.fromEnv && len(f.enum) > 1 {
		hint = fmt.Sprintf("did you mean %q? %s", near, hint)
	}
	d.problem(n, hint, "%s cannot be here", n.shown())
	return false
}

func (d *decoder) checkRange(n *node, f *field, x float64) {
	if f.minimum != nil && x < *f.minimum {
		d.problem(n, "", "%s is below the least value %v", n.shown(), *f.minimum)
	}
	if f.maximum != nil && x > *f.maximum {
		d.problem(n, "", "%s is above the greatest value %v", n.shown(), *f.maximum)
	}
}

// shown is the value as messages may show it: as written in the file, never
// what the environment put there.
func (n *node) shown() string {
	if n.kind >= kindList || n.kind == kindNull {
		return n.kind.String()
	}
	return strconv.Quote(n.raw)
}

// json renders the node; resolved chooses values with references replaced.
func (n *node) json(resolved bool) []byte {
	text := n.raw
	if resolved {
		text = n.value
	}
	switch n.kind {
	case kindNull:
		return []byte("null")
	case kindBool, kindInt, kindFloat:
		if json.Valid([]byte(text)) {
			return []byte(text)
		}
		return quoteJSON(text)
	case kindString:
		return quoteJSON(text)
	case kindList:
		out := []byte("[")
		for i, item := range n.items {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, item.json(resolved)...)
		}
		return append(out, ']')
	}
	out := []byte("{")
	for i, e := range n.entries {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoteJSON(e.key)...), ':'), e.value.json(resolved)...)
	}
	return append(out, '}')
}

// quoteJSON writes a string as JSON; invalid UTF-8 becomes replacement characters.
func quoteJSON(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`)
	}
	return b
}
