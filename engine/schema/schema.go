// Package schema holds the logical types in which rows are described on their
// way from a source to a sink, and how each of them travels in Arrow columns.
//
// A logical type says what a value means; the native type travels beside it, so
// that two ends of the same system can round-trip what no logical type can hold.
package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is the family of a logical type.
type Kind string

// The logical kinds.
const (
	// Unknown is a value that only its native system understands; in Arrow it
	// travels as the text that the system prints.
	Unknown Kind = "unknown"
	Bool    Kind = "bool"
	Int8    Kind = "int8"
	Int16   Kind = "int16"
	Int32   Kind = "int32"
	Int64   Kind = "int64"
	Uint8   Kind = "uint8"
	Uint16  Kind = "uint16"
	Uint32  Kind = "uint32"
	Uint64  Kind = "uint64"
	Float32 Kind = "float32"
	Float64 Kind = "float64"
	// Decimal has Precision 1–76 and a Scale, or Precision 0: unbounded, which
	// travels as decimal text ("NaN", "Infinity" and "-Infinity" included).
	Decimal Kind = "decimal"
	String  Kind = "string"
	Bytes   Kind = "bytes"
	// Date counts days; the extreme int32 values mean ±infinity.
	Date Kind = "date"
	// Time is the time of day without zone, Digits fractional digits.
	Time Kind = "time"
	// Timestamp is a wall-clock time without zone; the extreme int64 values
	// mean ±infinity.
	Timestamp Kind = "timestamp"
	// TimestampTZ is an instant; the extreme int64 values mean ±infinity.
	TimestampTZ Kind = "timestamptz"
	// Interval has months, days and a time part (µs or ns) that do not mix.
	Interval Kind = "interval"
	// JSON is JSON text kept as it is written.
	JSON Kind = "json"
	// JSONB is JSON compared by value: order of keys and spaces mean nothing.
	JSONB Kind = "jsonb"
	UUID  Kind = "uuid"
	// Enum is a string out of Labels.
	Enum Kind = "enum"
	// Array has elements of type Elem, any number of dimensions, and lower bounds.
	Array Kind = "array"
)

// Type is a logical type.
type Type struct {
	Kind Kind `json:"kind"`
	// Precision is the number of decimal digits of a Decimal; 0 means unbounded.
	Precision int `json:"precision,omitempty"`
	// Scale is the number of digits after the point of a bounded Decimal.
	Scale int `json:"scale,omitempty"`
	// Digits is the number of fractional-second digits that the source keeps
	// (0–9) for Time, Timestamp, TimestampTZ; values above 6 travel in ns,
	// all others in µs.
	Digits int `json:"digits,omitempty"`
	// Length is the greatest number of characters of a String; 0 means no limit.
	Length int `json:"length,omitempty"`
	// Elem is the type of an Array's elements.
	Elem *Type `json:"elem,omitempty"`
	// Labels are an Enum's labels, in order.
	Labels []string `json:"labels,omitempty"`
}

// String writes the type as docs and messages do: "decimal(12,2)", "array<int32>".
func (t Type) String() string {
	switch t.Kind {
	case Decimal:
		if t.Precision == 0 {
			return "decimal"
		}
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case Time, Timestamp, TimestampTZ:
		return fmt.Sprintf("%s(%d)", t.Kind, t.Digits)
	case String:
		if t.Length > 0 {
			return fmt.Sprintf("string(%d)", t.Length)
		}
	case Array:
		if t.Elem != nil {
			return "array<" + t.Elem.String() + ">"
		}
	case Enum:
		return "enum(" + strings.Join(t.Labels, ",") + ")"
	}
	return string(t.Kind)
}

// Equal tells whether two logical types are the same.
func (t Type) Equal(o Type) bool {
	if t.Kind != o.Kind || t.Precision != o.Precision || t.Scale != o.Scale ||
		t.Digits != o.Digits || t.Length != o.Length || !slices.Equal(t.Labels, o.Labels) {
		return false
	}
	if (t.Elem == nil) != (o.Elem == nil) {
		return false
	}
	return t.Elem == nil || t.Elem.Equal(*o.Elem)
}

// Integer tells whether the kind is one of the eight integer kinds.
func (k Kind) Integer() bool {
	switch k {
	case Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64:
		return true
	}
	return false
}

// Native names the type in the system that a value comes from.
type Native struct {
	// System is the connector's name, such as "postgres".
	System string `json:"system,omitempty"`
	// Type is the type as the system writes it, modifiers included, such as
	// "numeric(12,2)" or "shop.mood".
	Type string `json:"type,omitempty"`
	// OID and Typmod are PostgreSQL's numbers for it, in the source's database.
	// Typmod is -1 without a modifier; both are 0 for other systems.
	OID    uint32 `json:"oid,omitempty"`
	Typmod int32  `json:"typmod,omitempty"`
	// BaseOID and BaseTypmod are those of the type that a PostgreSQL domain is
	// based on in the end; 0 for a type that is no domain.
	BaseOID    uint32 `json:"base_oid,omitempty"`
	BaseTypmod int32  `json:"base_typmod,omitempty"`
	// Version is the system's major version, for encodings that changed between
	// versions; 0 means not known.
	Version int `json:"version,omitempty"`
}

// Field is one column of a resource.
type Field struct {
	Name     string `json:"name"`
	Type     Type   `json:"type"`
	Native   Native `json:"native,omitzero"`
	Nullable bool   `json:"nullable"`
	// Generated is true for a column that the source computes from others.
	Generated bool `json:"generated,omitempty"`
	// Identity is "", "always" or "by default".
	Identity string `json:"identity,omitempty"`
	// Default is the source's default expression, for information.
	Default string `json:"default,omitempty"`
	Comment string `json:"comment,omitempty"`
}

// Schema describes the rows of one resource.
type Schema struct {
	Fields []Field `json:"fields"`
	// Key names the columns that identify a row, in order; empty: keyless.
	Key     []string `json:"key,omitempty"`
	Comment string   `json:"comment,omitempty"`
}

// Index returns the position of the named field, or -1.
func (s *Schema) Index(name string) int {
	return slices.IndexFunc(s.Fields, func(f Field) bool { return f.Name == name })
}

// Field returns the named field.
func (s *Schema) Field(name string) (Field, bool) {
	i := s.Index(name)
	if i < 0 {
		return Field{}, false
	}
	return s.Fields[i], true
}

// Names returns the column names in order.
func (s *Schema) Names() []string {
	names := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		names[i] = f.Name
	}
	return names
}

// Validate tells what is wrong with a schema: no fields, doubled names, a key
// that names no field, a type that cannot be.
func (s *Schema) Validate() error {
	if len(s.Fields) == 0 {
		return errors.New("schema has no columns")
	}
	seen := make(map[string]bool, len(s.Fields))
	for _, f := range s.Fields {
		if f.Name == "" {
			return errors.New("schema has a column without a name")
		}
		if seen[f.Name] {
			return fmt.Errorf("schema has two columns named %q", f.Name)
		}
		seen[f.Name] = true
		if err := f.Type.validate(); err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
	}
	for _, k := range s.Key {
		if !seen[k] {
			return fmt.Errorf("key names the column %q, which does not exist", k)
		}
	}
	return nil
}

func (t Type) validate() error {
	switch t.Kind {
	case Decimal:
		if t.Precision < 0 || t.Precision > 76 || (t.Precision > 0 && (t.Scale > t.Precision || t.Scale < 0)) {
			return fmt.Errorf("type %s cannot be: precision is 0 (unbounded) to 76, scale 0 to precision", t)
		}
	case Array:
		if t.Elem == nil {
			return errors.New("an array type needs its element type")
		}
		return t.Elem.validate()
	case Unknown, Bool, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Float32, Float64,
		String, Bytes, Date, Time, Timestamp, TimestampTZ, Interval, JSON, JSONB, UUID, Enum:
	default:
		return fmt.Errorf("unknown kind %q", t.Kind)
	}
	return nil
}
