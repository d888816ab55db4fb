package pgsink

import (
	"context"
	"fmt"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine/schema"
)

// sqlType is a column's type: what the catalog says, and how DDL writes it.
type sqlType struct {
	Info pgcopy.TypeInfo `json:"info"`
	SQL  string          `json:"sql"`
}

func textType() sqlType {
	return sqlType{Info: pgcopy.TypeInfo{OID: pgcopy.OIDText, Typmod: -1, Name: "text", Schema: "pg_catalog", Typtype: 'b', Category: 'S'}, SQL: "text"}
}

// natural is the type that holds every value of a logical type, of the types
// that every PostgreSQL has; "" means text, in which anything can be written.
func natural(t schema.Type) (sql string, typmod int32) {
	switch t.Kind {
	case schema.Bool:
		return "boolean", -1
	case schema.Int8, schema.Int16, schema.Uint8:
		return "smallint", -1
	case schema.Int32, schema.Uint16:
		return "integer", -1
	case schema.Int64, schema.Uint32:
		return "bigint", -1
	case schema.Uint64:
		return "numeric(20,0)", 20<<16 + 4
	case schema.Float32:
		return "real", -1
	case schema.Float64:
		return "double precision", -1
	case schema.Decimal:
		if t.Precision == 0 {
			return "numeric", -1
		}
		return fmt.Sprintf("numeric(%d,%d)", t.Precision, t.Scale), int32(t.Precision)<<16 + int32(t.Scale) + 4
	case schema.String:
		const longestVarchar = 10485760
		if t.Length > 0 && t.Length <= longestVarchar {
			return fmt.Sprintf("varchar(%d)", t.Length), int32(t.Length) + 4
		}
		return "text", -1
	case schema.Bytes:
		return "bytea", -1
	case schema.Date:
		return "date", -1
	case schema.Time:
		return seconds("time", "", t.Digits)
	case schema.Timestamp:
		return seconds("timestamp", "", t.Digits)
	case schema.TimestampTZ:
		return seconds("timestamp", " with time zone", t.Digits)
	case schema.Interval:
		return "interval", -1
	case schema.JSON:
		return "json", -1
	case schema.JSONB:
		return "jsonb", -1
	case schema.UUID:
		return "uuid", -1
	case schema.Array:
		if e, mod := natural(*t.Elem); e != "text" || t.Elem.Kind == schema.String {
			return e + "[]", mod
		}
		return "text[]", -1
	}
	return "text", -1
}

func seconds(name, zone string, digits int) (string, int32) {
	if digits >= 6 {
		return name + zone, -1
	}
	return fmt.Sprintf("%s(%d)%s", name, digits, zone), int32(digits)
}

// typeReader looks types up at the destination.
type typeReader struct {
	s *Session
	c *conn
}

// byName finds a type by the name that SQL would write, nil if there is none.
func (r *typeReader) byName(ctx context.Context, sql string, typmod int32) (*pgcopy.TypeInfo, error) {
	var oid *int64
	if err := r.c.QueryRow(ctx, `SELECT to_regtype($1)::oid::int8`, sql).Scan(&oid); err != nil {
		return nil, classify(err, "look up type %s", sql)
	}
	if oid == nil {
		return nil, nil
	}
	infos, err := r.byOID(ctx, []typeRef{{OID: uint32(*oid), Typmod: typmod, Name: sql}})
	if err != nil {
		return nil, err
	}
	return &infos[0], nil
}

type typeRef struct {
	OID    uint32
	Typmod int32
	Name   string
}

// byOID describes types that exist.
func (r *typeReader) byOID(ctx context.Context, refs []typeRef) ([]pgcopy.TypeInfo, error) {
	oids := make([]int64, len(refs))
	for i, ref := range refs {
		oids[i] = int64(ref.OID)
	}
	rows, err := r.c.Query(ctx, pgcopy.CatalogSQL, oids)
	if err != nil {
		return nil, classify(err, "read types")
	}
	defer rows.Close()
	var found []pgcopy.CatalogRow
	for rows.Next() {
		var t pgcopy.CatalogRow
		if err := rows.Scan(&t.OID, &t.Name, &t.Schema, &t.Typtype, &t.Category, &t.BaseOID, &t.BaseTypmod, &t.ElemOID, &t.Labels); err != nil {
			return nil, classify(err, "read types")
		}
		found = append(found, t)
	}
	if err := rows.Err(); err != nil {
		return nil, classify(err, "read types")
	}
	catalog := pgcopy.NewCatalog(r.s.major, found)
	infos := make([]pgcopy.TypeInfo, len(refs))
	for i, ref := range refs {
		if infos[i], err = catalog.Type(ref.OID, ref.Typmod, ref.Name); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// naturalType is natural, looked up.
func (r *typeReader) naturalType(ctx context.Context, t schema.Type) (sqlType, error) {
	sql, typmod := natural(t)
	info, err := r.byName(ctx, sql, typmod)
	if err != nil {
		return sqlType{}, err
	}
	if info == nil {
		return textType(), nil
	}
	return sqlType{Info: *info, SQL: sql}, nil
}
