package pgcopy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// TypeInfo is what the catalog says about a column's type.
type TypeInfo struct {
	OID uint32
	// Typmod is the column's type modifier, -1 without one.
	Typmod int32
	// Name is the type as format_type prints it, modifiers included.
	Name string
	// Schema is the schema that holds the type.
	Schema string
	// Typtype is pg_type.typtype: 'b' base, 'd' domain, 'e' enum, 'c' composite,
	// 'r' range, 'm' multirange, 'p' pseudo.
	Typtype byte
	// Category is pg_type.typcategory.
	Category byte
	// Base is the type that a domain is based on in the end, with the domain's
	// modifier; nil for a type that is no domain.
	Base *TypeInfo
	// Elem is the element type of a true array, with the array's modifier; nil
	// for a type that is no array.
	Elem *TypeInfo
	// Labels are an enum's labels in order.
	Labels []string
	// Major is the server's major version, 0 if not known.
	Major int
}

// base returns the type below a domain.
func (t TypeInfo) base() TypeInfo {
	if t.Base != nil {
		return *t.Base
	}
	return t
}

// shape is the layout of a binary field, with the elements' for an array.
type shape struct {
	form form
	// oid and typmod are those of the type below a domain.
	oid    uint32
	typmod int32
	elem   *shape
	// elemOID is the element type's own OID, which an array's head holds.
	elemOID uint32
}

func (t TypeInfo) shape() shape {
	b := t.base()
	s := shape{oid: b.OID, typmod: b.Typmod}
	switch {
	case b.Typtype == 'e':
		s.form = formText
	case b.Elem != nil:
		e := b.Elem.shape()
		if e.form != formOpaque {
			s.form, s.elem, s.elemOID = formArray, &e, b.Elem.OID
		}
	default:
		if d, ok := builtinOf(b.OID); ok {
			s.form = d.form
		}
	}
	return s
}

// Logical returns the logical type of the type's values. A type that no kind can
// hold exactly is Unknown: a source reads it as text (see SelectAsText).
func (t TypeInfo) Logical() schema.Type {
	b := t.base()
	if b.Typtype == 'e' {
		return schema.Type{Kind: schema.Enum, Labels: slices.Clone(b.Labels)}
	}
	if b.Elem != nil {
		e := b.Elem.Logical()
		if e.Kind == schema.Unknown || e.Kind == schema.Array {
			return schema.Type{Kind: schema.Unknown}
		}
		return schema.Type{Kind: schema.Array, Elem: &e}
	}
	switch b.OID {
	case OIDBool:
		return schema.Type{Kind: schema.Bool}
	case OIDInt2:
		return schema.Type{Kind: schema.Int16}
	case OIDInt4:
		return schema.Type{Kind: schema.Int32}
	case OIDInt8:
		return schema.Type{Kind: schema.Int64}
	case OIDOID:
		return schema.Type{Kind: schema.Uint32}
	case OIDFloat4:
		return schema.Type{Kind: schema.Float32}
	case OIDFloat8:
		return schema.Type{Kind: schema.Float64}
	case OIDNumeric:
		if p, s, ok := numericTypmod(b.Typmod); ok && p <= 76 && s >= 0 && s <= p {
			return schema.Type{Kind: schema.Decimal, Precision: p, Scale: s}
		}
		return schema.Type{Kind: schema.Decimal}
	case OIDText, OIDName:
		return schema.Type{Kind: schema.String}
	case OIDVarchar, OIDBpchar:
		return schema.Type{Kind: schema.String, Length: charTypmod(b.Typmod)}
	case OIDBytea:
		return schema.Type{Kind: schema.Bytes}
	case OIDDate:
		return schema.Type{Kind: schema.Date}
	case OIDTime:
		return schema.Type{Kind: schema.Time, Digits: secondsTypmod(b.Typmod)}
	case OIDTimestamp:
		return schema.Type{Kind: schema.Timestamp, Digits: secondsTypmod(b.Typmod)}
	case OIDTimestamptz:
		return schema.Type{Kind: schema.TimestampTZ, Digits: secondsTypmod(b.Typmod)}
	case OIDInterval:
		return schema.Type{Kind: schema.Interval}
	case OIDJSON:
		return schema.Type{Kind: schema.JSON}
	case OIDJSONB:
		return schema.Type{Kind: schema.JSONB}
	case OIDUUID:
		return schema.Type{Kind: schema.UUID}
	}
	return schema.Type{Kind: schema.Unknown}
}

// SelectAsText tells whether a source that decodes rows must select the column
// cast to text.
func (t TypeInfo) SelectAsText() bool { return t.Logical().Kind == schema.Unknown }

// Native returns the type as a field carries it.
func (t TypeInfo) Native() schema.Native {
	n := schema.Native{System: System, Type: t.Name, OID: t.OID, Typmod: t.Typmod, Version: t.Major}
	if t.Base != nil {
		n.BaseOID, n.BaseTypmod = t.Base.OID, t.Base.Typmod
	}
	return n
}

// System is the name that PostgreSQL's native types carry in a schema.
const System = "postgres"

// FieldType rebuilds from a field what the source's catalog said, as far as the
// field tells it; false if the field is not PostgreSQL's. Types of users other
// than enums and domains come back without structure, and so as not wire-safe.
func FieldType(f schema.Field) (TypeInfo, bool) {
	n := f.Native
	if n.System != System || n.OID == 0 {
		return TypeInfo{}, false
	}
	t := TypeInfo{OID: n.OID, Typmod: n.Typmod, Name: n.Type, Typtype: 'b', Major: n.Version}
	if n.BaseOID != 0 {
		b := rebuild(n.BaseOID, n.BaseTypmod, f.Type, n.Version)
		t.Typtype, t.Base = 'd', &b
		return t, true
	}
	r := rebuild(n.OID, n.Typmod, f.Type, n.Version)
	r.Name = n.Type
	return r, true
}

func rebuild(oid uint32, typmod int32, l schema.Type, major int) TypeInfo {
	t := TypeInfo{OID: oid, Typmod: typmod, Typtype: 'b', Major: major}
	if b, ok := builtinOf(oid); ok {
		t.Name, t.Schema = b.name, "pg_catalog"
		return t
	}
	if e, ok := arrayElem(oid); ok {
		elem := rebuild(e, typmod, schema.Type{}, major)
		t.Elem, t.Name, t.Category = &elem, elem.Name+"[]", 'A'
		return t
	}
	switch {
	case l.Kind == schema.Enum:
		t.Typtype, t.Labels = 'e', l.Labels
	case l.Kind == schema.Array && l.Elem != nil && l.Elem.Kind == schema.Enum:
		t.Elem = &TypeInfo{OID: firstUserOID, Typmod: -1, Typtype: 'e', Labels: l.Elem.Labels, Major: major}
	}
	return t
}

// numericTypmod splits a numeric's modifier; ok is false without one. A scale
// may be negative or exceed the precision since PostgreSQL 15.
func numericTypmod(typmod int32) (precision, scale int, ok bool) {
	if typmod < 4 {
		return 0, 0, false
	}
	m := typmod - 4
	return int(m>>16) & 0xffff, int((m&0x7ff)^0x400) - 0x400, true
}

// charTypmod returns the length of a varchar(n) or char(n), 0 without one.
func charTypmod(typmod int32) int {
	if typmod < 4 {
		return 0
	}
	return int(typmod - 4)
}

// secondsTypmod returns the number of fractional digits of a time type.
func secondsTypmod(typmod int32) int {
	if typmod < 0 || typmod > 6 {
		return 6
	}
	return int(typmod)
}

// WireSafe tells whether values of a pass verbatim into a column of b as binary
// COPY fields, with exactly the same meaning (P14), and if not, why. A column
// that is not safe goes as text inside the wire ([engine.TargetColumn.AsText]).
// Only types on the tested list are safe, and only with an equal modifier: a
// binary COPY rounds, pads and cuts silently where modifiers differ.
func WireSafe(a, b TypeInfo) (bool, string) {
	x, y := a.base(), b.base()
	if x.Elem != nil || y.Elem != nil {
		return wireSafeArrays(x, y)
	}
	if x.Typtype == 'e' || y.Typtype == 'e' {
		if x.Typtype != y.Typtype {
			return false, fmt.Sprintf("%s and %s are not both enums", x.Name, y.Name)
		}
		if !slices.Equal(x.Labels, y.Labels) {
			return false, fmt.Sprintf("the labels of %s and %s differ", x.Name, y.Name)
		}
		return true, ""
	}
	d, ok := builtinOf(x.OID)
	switch {
	case !ok:
		return false, "the binary form of " + typeName(x) + " may hold numbers of its own database"
	case d.unsafe != "":
		return false, d.unsafe
	case x.OID != y.OID:
		return false, fmt.Sprintf("%s and %s are different types", typeName(x), typeName(y))
	case x.Typmod != y.Typmod:
		return false, fmt.Sprintf("the modifiers of %s and %s differ", typeName(x), typeName(y))
	case x.OID == OIDInterval && (x.Major >= 17) != (y.Major >= 17):
		return false, "PostgreSQL 17 gave intervals infinite values that earlier versions read as numbers"
	case x.OID == OIDInterval && (x.Major == 0 || y.Major == 0):
		return false, "interval differs between versions, and a server's version is not known"
	}
	return true, ""
}

func wireSafeArrays(x, y TypeInfo) (bool, string) {
	switch {
	case x.Elem == nil || y.Elem == nil:
		return false, fmt.Sprintf("%s and %s are not both arrays", typeName(x), typeName(y))
	case x.OID >= firstUserOID || y.OID >= firstUserOID:
		return false, "an array's binary form holds the number of its element type in its own database"
	}
	// The array's modifier is its elements'.
	return WireSafe(*x.Elem, *y.Elem)
}

func typeName(t TypeInfo) string {
	if t.Name != "" {
		return t.Name
	}
	if b, ok := builtinOf(t.OID); ok {
		return b.name
	}
	return fmt.Sprintf("type %d", t.OID)
}

// CatalogSQL reads the types with the OIDs $1 (oid[]) and those below them: its
// rows are for [NewCatalog]. It works on PostgreSQL 13 and later and needs no
// rights beyond connecting.
const CatalogSQL = `WITH RECURSIVE t AS (
	SELECT y.* FROM pg_catalog.pg_type y WHERE y.oid = ANY ($1::oid[])
	UNION
	SELECT y.* FROM pg_catalog.pg_type y JOIN t ON y.oid = t.typbasetype OR y.oid = t.typelem
)
SELECT t.oid::int8, t.typname::text, n.nspname::text, t.typtype::text, t.typcategory::text,
	t.typbasetype::int8, t.typtypmod,
	CASE WHEN t.typlen = -1 AND EXISTS (SELECT FROM pg_catalog.pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid)
		THEN t.typelem::int8 ELSE 0 END,
	ARRAY(SELECT e.enumlabel::text FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder)
FROM t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace`

// CatalogRow is a row of CatalogSQL, its columns in order.
type CatalogRow struct {
	OID      int64
	Name     string
	Schema   string
	Typtype  string
	Category string
	// BaseOID and BaseTypmod are a domain's next type; 0 for others.
	BaseOID    int64
	BaseTypmod int32
	// ElemOID is the element type of a true array; 0 for others.
	ElemOID int64
	Labels  []string
}

// Catalog finds types by OID.
type Catalog struct {
	rows  map[uint32]CatalogRow
	major int
}

// NewCatalog makes a catalog of a server with the major version.
func NewCatalog(major int, rows []CatalogRow) *Catalog {
	c := &Catalog{rows: make(map[uint32]CatalogRow, len(rows)), major: major}
	for _, r := range rows {
		c.rows[uint32(r.OID)] = r
	}
	return c
}

// Type describes a column's type; formatted is what format_type(oid, typmod)
// printed for it, empty if the name in the catalog is enough.
func (c *Catalog) Type(oid uint32, typmod int32, formatted string) (TypeInfo, error) {
	return c.resolve(oid, typmod, formatted, 0)
}

func (c *Catalog) resolve(oid uint32, typmod int32, formatted string, depth int) (TypeInfo, error) {
	r, ok := c.rows[oid]
	if !ok || depth > 100 {
		return TypeInfo{}, engine.Bugf("resolve type %d %s: the catalog rows do not hold it", oid, formatted)
	}
	t := TypeInfo{OID: oid, Typmod: typmod, Name: formatted, Schema: r.Schema, Typtype: first(r.Typtype),
		Category: first(r.Category), Labels: r.Labels, Major: c.major}
	if t.Name == "" {
		t.Name = r.Name
		if r.Schema != "pg_catalog" {
			t.Name = r.Schema + "." + r.Name
		}
	}
	if r.BaseOID != 0 {
		b, err := c.resolve(uint32(r.BaseOID), r.BaseTypmod, "", depth+1)
		if err != nil {
			return TypeInfo{}, err
		}
		// A domain over a domain: the innermost is what the field holds, and the
		// modifier stands where it was written.
		if b.Base != nil {
			b = *b.Base
		}
		t.Base = &b
	}
	if r.ElemOID != 0 {
		e, err := c.resolve(uint32(r.ElemOID), typmod, "", depth+1)
		if err != nil {
			return TypeInfo{}, err
		}
		t.Elem = &e
	}
	return t, nil
}

func first(s string) byte {
	if s = strings.TrimSpace(s); s != "" {
		return s[0]
	}
	return 0
}
