package pgcopy_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

func recordDigest(t *testing.T, fields []schema.Field, rec arrow.RecordBatch) integrity.Digest {
	t.Helper()
	d, err := integrity.RecordDigest(&schema.Schema{Fields: fields}, rec)
	require.NoError(t, err)
	return d
}

func TestWireSafeNeedsEqualTypes(t *testing.T) {
	enum := func(labels ...string) pgcopy.TypeInfo {
		return pgcopy.TypeInfo{OID: 20000, Typmod: -1, Typtype: 'e', Name: "mood", Labels: labels}
	}
	array := func(oid uint32, elem pgcopy.TypeInfo) pgcopy.TypeInfo {
		return pgcopy.TypeInfo{OID: oid, Typmod: elem.Typmod, Typtype: 'b', Elem: &elem}
	}
	text, num := dest(pgcopy.OIDText, -1), dest(pgcopy.OIDNumeric, 12<<16|2+4)
	interval := dest(pgcopy.OIDInterval, -1)
	old := interval
	old.Major = 16
	unknown := interval
	unknown.Major = 0
	moved := enum("a", "b")
	moved.OID = 30000
	domain := pgcopy.TypeInfo{OID: 21000, Typmod: -1, Typtype: 'd', Base: &num}
	for _, c := range []struct {
		name string
		a, b pgcopy.TypeInfo
		safe bool
	}{
		{"same", text, text, true},
		{"text and varchar", text, dest(pgcopy.OIDVarchar, -1), false},
		{"another scale", num, dest(pgcopy.OIDNumeric, 12<<16|3+4), false},
		{"varchar(3) into varchar(4)", dest(pgcopy.OIDVarchar, 7), dest(pgcopy.OIDVarchar, 8), false},
		{"int4 and int8", dest(pgcopy.OIDInt4, -1), dest(pgcopy.OIDInt8, -1), false},
		{"timestamp(3)", dest(pgcopy.OIDTimestamp, 3), dest(pgcopy.OIDTimestamp, -1), false},
		{"enum by labels", enum("a", "b"), moved, true},
		{"enum with another label", enum("a", "b"), enum("a"), false},
		{"enum and text", enum("a"), text, false},
		{"domain and its base", domain, num, true},
		{"interval", interval, interval, true},
		{"interval from before 17", old, interval, false},
		{"interval of unknown age", unknown, unknown, false},
		{"array", array(1009, text), array(1009, text), true},
		{"array of another modifier", array(1231, num), array(1231, dest(pgcopy.OIDNumeric, -1)), false},
		{"array of enums", array(20001, enum("a")), array(20001, enum("a")), false},
		{"array and element", array(1009, text), text, false},
		{"regclass", dest(2205, -1), dest(2205, -1), false},
		{"money", dest(790, -1), dest(790, -1), false},
		{"a type of an extension", dest(40000, -1), dest(40000, -1), false},
	} {
		safe, reason := pgcopy.WireSafe(c.a, c.b)
		require.Equal(t, c.safe, safe, c.name)
		require.Equal(t, c.safe, reason == "", c.name)
	}
}

// Columns that go as text inside a wire have the digest of their values where
// they can be parsed, so that it is the one of a run without a wire.
func TestTextInsideTheWire(t *testing.T) {
	s := newServer(t)
	s.exec(`CREATE TABLE w (id int, n numeric(12,2), j jsonb, u uuid, b bool, f float8, t text, r regclass);
		INSERT INTO w VALUES (1, 1.50, '{"b":1,"a":2.0}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', true, 0.1, 'x', 'w'), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (3, 'NaN', '1', NULL, false, 'NaN', '', NULL)`)
	fields, infos := s.columns("w")
	plain, err := pgcopy.NewDigester(fields, nil)
	require.NoError(t, err)
	want := digest(t, plain, s.copyOut("SELECT "+selectList(fields, infos)+" FROM w", 8))
	asText, err := pgcopy.NewDigester(fields, []bool{true, true, true, true, true, true, true, true})
	require.NoError(t, err)
	require.Equal(t, want, digest(t, asText, s.copyOut("SELECT id::text, n::text, j::text, u::text, b::text, f::text, t, r::text FROM w", 8)))
}
