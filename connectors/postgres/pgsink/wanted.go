package pgsink

import (
	"context"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// wanted is the type that a column should have at the destination.
type wanted struct {
	sqlType
	// create is a statement that makes the type.
	create  string
	warning string
}

// firstUserOID is the first number that a database gives to types of its users.
const firstUserOID = 16384

// wantedType finds the type for a field: the source's own where the destination
// has it, an enum that is made, else text or what the logical type needs.
func (r *typeReader) wantedType(ctx context.Context, resource, schemaName string, f schema.Field, policy engine.Policy) (wanted, error) {
	if policy == engine.PolicyText {
		return wanted{sqlType: textType()}, nil
	}
	src, ok := pgcopy.FieldType(f)
	if !ok {
		t, err := r.naturalType(ctx, f.Type)
		return wanted{sqlType: t}, err
	}
	if src.OID < firstUserOID {
		t, err := r.byName(ctx, f.Native.Type, f.Native.Typmod)
		if err != nil {
			return wanted{}, err
		}
		if t != nil {
			return wanted{sqlType: sqlType{Info: *t, SQL: f.Native.Type}}, nil
		}
		return r.substitute(ctx, resource, f)
	}
	if f.Type.Kind == schema.Enum && src.Base == nil {
		return r.wantedEnum(ctx, resource, schemaName, f, f.Native.Type, f.Type.Labels, "")
	}
	if f.Type.Kind == schema.Array && f.Type.Elem != nil && f.Type.Elem.Kind == schema.Enum && src.Base == nil {
		return r.wantedEnum(ctx, resource, schemaName, f, strings.TrimSuffix(f.Native.Type, "[]"), f.Type.Elem.Labels, "[]")
	}
	t, err := r.byName(ctx, f.Native.Type, f.Native.Typmod)
	if err != nil {
		return wanted{}, err
	}
	if t != nil {
		return wanted{sqlType: sqlType{Info: *t, SQL: f.Native.Type}}, nil
	}
	return r.substitute(ctx, resource, f)
}

// substitute is the type for a value whose own type the destination lacks.
func (r *typeReader) substitute(ctx context.Context, resource string, f schema.Field) (wanted, error) {
	t, err := r.naturalType(ctx, f.Type)
	if err != nil {
		return wanted{}, err
	}
	return wanted{sqlType: t, warning: fmt.Sprintf("%s column %q: the destination has no type %s, so it becomes %s",
		resource, f.Name, f.Native.Type, t.SQL)}, nil
}

// wantedEnum finds an enum with the same labels, in the target's schema or under
// the source's name, or makes one in the target's schema.
func (r *typeReader) wantedEnum(ctx context.Context, resource, schemaName string, f schema.Field, native string, labels []string, suffix string) (wanted, error) {
	parts, err := parseName(native)
	if err != nil {
		return wanted{}, err
	}
	own := qualified(schemaName, fitName(parts[len(parts)-1]))
	for _, name := range []string{own, native} {
		t, err := r.byName(ctx, name, -1)
		if err != nil {
			return wanted{}, err
		}
		if t == nil || t.Typtype != 'e' || !equal(t.Labels, labels) {
			if t != nil && name == own {
				return wanted{sqlType: textType(), warning: fmt.Sprintf(
					"%s column %q: the destination's type %s is another one than the source's %s, so the column becomes text",
					resource, f.Name, own, native)}, nil
			}
			continue
		}
		if suffix == "" {
			return wanted{sqlType: sqlType{Info: *t, SQL: name}}, nil
		}
		array, err := r.byName(ctx, name+suffix, -1)
		if err != nil || array == nil {
			return wanted{}, err
		}
		return wanted{sqlType: sqlType{Info: *array, SQL: name + suffix}}, nil
	}
	quoted := make([]string, len(labels))
	for i, l := range labels {
		quoted[i] = literal(l)
	}
	info := pgcopy.TypeInfo{Typmod: -1, Name: own, Schema: schemaName, Typtype: 'e', Category: 'E', Labels: labels}
	if suffix != "" {
		elem := info
		info = pgcopy.TypeInfo{Typmod: -1, Name: own + suffix, Schema: schemaName, Typtype: 'b', Category: 'A', Elem: &elem}
	}
	return wanted{sqlType: sqlType{Info: info, SQL: own + suffix},
		create: "CREATE TYPE " + own + " AS ENUM (" + strings.Join(quoted, ", ") + ")"}, nil
}
