package pgcopy

// Object identifiers of PostgreSQL's own types. They are the same in every
// database of every supported version.
const (
	OIDBool        uint32 = 16
	OIDBytea       uint32 = 17
	OIDChar        uint32 = 18
	OIDName        uint32 = 19
	OIDInt8        uint32 = 20
	OIDInt2        uint32 = 21
	OIDInt4        uint32 = 23
	OIDText        uint32 = 25
	OIDOID         uint32 = 26
	OIDTID         uint32 = 27
	OIDJSON        uint32 = 114
	OIDPoint       uint32 = 600
	OIDLseg        uint32 = 601
	OIDPath        uint32 = 602
	OIDBox         uint32 = 603
	OIDPolygon     uint32 = 604
	OIDLine        uint32 = 628
	OIDCIDR        uint32 = 650
	OIDFloat4      uint32 = 700
	OIDFloat8      uint32 = 701
	OIDCircle      uint32 = 718
	OIDMacaddr8    uint32 = 774
	OIDMacaddr     uint32 = 829
	OIDInet        uint32 = 869
	OIDBpchar      uint32 = 1042
	OIDVarchar     uint32 = 1043
	OIDDate        uint32 = 1082
	OIDTime        uint32 = 1083
	OIDTimestamp   uint32 = 1114
	OIDTimestamptz uint32 = 1184
	OIDInterval    uint32 = 1186
	OIDTimetz      uint32 = 1266
	OIDBit         uint32 = 1560
	OIDVarbit      uint32 = 1562
	OIDNumeric     uint32 = 1700
	OIDUUID        uint32 = 2950
	OIDPgLSN       uint32 = 3220
	OIDTsvector    uint32 = 3614
	OIDTsquery     uint32 = 3615
	OIDJSONB       uint32 = 3802
	OIDInt4range   uint32 = 3904
	OIDNumrange    uint32 = 3906
	OIDTsrange     uint32 = 3908
	OIDTstzrange   uint32 = 3910
	OIDDaterange   uint32 = 3912
	OIDInt8range   uint32 = 3926
	OIDJSONPath    uint32 = 4072
	OIDXID8        uint32 = 5069

	OIDInt4multirange uint32 = 4451
	OIDNummultirange  uint32 = 4532
	OIDTsmultirange   uint32 = 4533
	OIDTstzmultirange uint32 = 4534
	OIDDatemultirange uint32 = 4535
	OIDInt8multirange uint32 = 4536
)

// firstUserOID is the first identifier that a database may give to a type of
// its users; such numbers mean something else in every database.
const firstUserOID uint32 = 16384

// form is how a value is laid out in a binary field.
type form uint8

const (
	// formOpaque is a layout that only the server understands.
	formOpaque form = iota
	// formText is text: the value itself (text, json, enum label) or the text
	// that the server prints for it.
	formText
	formBool
	formInt2
	formInt4
	formInt8
	// formOID is an unsigned 32-bit number.
	formOID
	formFloat4
	formFloat8
	formNumeric
	formBytea
	formDate
	formTime
	formTimestamp
	formInterval
	// formJSONB is a version byte 1 and JSON text.
	formJSONB
	formUUID
	formArray
)

func (f form) String() string {
	return [...]string{"opaque", "text", "bool", "int2", "int4", "int8", "oid", "float4", "float8",
		"numeric", "bytea", "date", "time", "timestamp", "interval", "jsonb", "uuid", "array"}[f]
}

// builtin describes a type of PostgreSQL's own: its layout, its array type, and
// whether its encoding passes through verbatim (P14). A type is on this list
// only with a row in the round-trip test.
type builtin struct {
	name  string
	form  form
	array uint32
	// unsafe says why the type can't pass through verbatim; empty: it can.
	unsafe string
}

// builtinOf finds a type of PostgreSQL's own.
func builtinOf(oid uint32) (builtin, bool) {
	switch oid {
	case OIDBool:
		return builtin{"boolean", formBool, 1000, ""}, true
	case OIDBytea:
		return builtin{"bytea", formBytea, 1001, ""}, true
	case OIDChar:
		return builtin{`"char"`, formOpaque, 1002, ""}, true
	case OIDName:
		return builtin{"name", formText, 1003, ""}, true
	case OIDInt2:
		return builtin{"smallint", formInt2, 1005, ""}, true
	case OIDInt4:
		return builtin{"integer", formInt4, 1007, ""}, true
	case OIDInt8:
		return builtin{"bigint", formInt8, 1016, ""}, true
	case OIDText:
		return builtin{"text", formText, 1009, ""}, true
	case OIDOID:
		return builtin{"oid", formOID, 1028, ""}, true
	case OIDTID:
		return builtin{"tid", formOpaque, 1010, ""}, true
	case OIDJSON:
		return builtin{"json", formText, 199, ""}, true
	case OIDFloat4:
		return builtin{"real", formFloat4, 1021, ""}, true
	case OIDFloat8:
		return builtin{"double precision", formFloat8, 1022, ""}, true
	case OIDBpchar:
		return builtin{"character", formText, 1014, ""}, true
	case OIDVarchar:
		return builtin{"character varying", formText, 1015, ""}, true
	case OIDDate:
		return builtin{"date", formDate, 1182, ""}, true
	case OIDTime:
		return builtin{"time without time zone", formTime, 1183, ""}, true
	case OIDTimestamp:
		return builtin{"timestamp without time zone", formTimestamp, 1115, ""}, true
	case OIDTimestamptz:
		return builtin{"timestamp with time zone", formTimestamp, 1185, ""}, true
	case OIDInterval:
		return builtin{"interval", formInterval, 1187, ""}, true
	case OIDNumeric:
		return builtin{"numeric", formNumeric, 1231, ""}, true
	case OIDUUID:
		return builtin{"uuid", formUUID, 2951, ""}, true
	case OIDJSONB:
		return builtin{"jsonb", formJSONB, 3807, ""}, true
	}
	return opaqueBuiltin(oid)
}

// opaqueBuiltin are types without a logical kind of their own.
func opaqueBuiltin(oid uint32) (builtin, bool) {
	b := builtin{form: formOpaque}
	switch oid {
	case OIDPoint:
		b.name, b.array = "point", 1017
	case OIDLseg:
		b.name, b.array = "lseg", 1018
	case OIDPath:
		b.name, b.array = "path", 1019
	case OIDBox:
		b.name, b.array = "box", 1020
	case OIDPolygon:
		b.name, b.array = "polygon", 1027
	case OIDLine:
		b.name, b.array = "line", 629
	case OIDCircle:
		b.name, b.array = "circle", 719
	case OIDCIDR:
		b.name, b.array = "cidr", 651
	case OIDInet:
		b.name, b.array = "inet", 1041
	case OIDMacaddr:
		b.name, b.array = "macaddr", 1040
	case OIDMacaddr8:
		b.name, b.array = "macaddr8", 775
	case OIDTimetz:
		b.name, b.array = "time with time zone", 1270
	case OIDBit:
		b.name, b.array = "bit", 1561
	case OIDVarbit:
		b.name, b.array = "bit varying", 1563
	case OIDPgLSN:
		b.name, b.array = "pg_lsn", 3221
	case OIDTsvector:
		b.name, b.array = "tsvector", 3643
	case OIDTsquery:
		b.name, b.array = "tsquery", 3645
	case OIDJSONPath:
		b.name, b.array = "jsonpath", 4073
	case OIDXID8:
		b.name, b.array = "xid8", 271
	case OIDInt4range:
		b.name, b.array = "int4range", 3905
	case OIDNumrange:
		b.name, b.array = "numrange", 3907
	case OIDTsrange:
		b.name, b.array = "tsrange", 3909
	case OIDTstzrange:
		b.name, b.array = "tstzrange", 3911
	case OIDDaterange:
		b.name, b.array = "daterange", 3913
	case OIDInt8range:
		b.name, b.array = "int8range", 3927
	case OIDInt4multirange:
		b.name, b.array = "int4multirange", 6150
	case OIDNummultirange:
		b.name, b.array = "nummultirange", 6151
	case OIDTsmultirange:
		b.name, b.array = "tsmultirange", 6152
	case OIDTstzmultirange:
		b.name, b.array = "tstzmultirange", 6153
	case OIDDatemultirange:
		b.name, b.array = "datemultirange", 6155
	case OIDInt8multirange:
		b.name, b.array = "int8multirange", 6157
	case 142:
		b.name, b.array, b.unsafe = "xml", 143, "xml is parsed anew with the encoding that its text declares"
	case 790:
		b.name, b.array, b.unsafe = "money", 791, "money means what lc_monetary of each server says"
	default:
		return builtin{}, false
	}
	return b, true
}

// arrayElem returns the element type of a built-in array type.
func arrayElem(oid uint32) (uint32, bool) {
	for _, e := range builtinOIDs() {
		if b, ok := builtinOf(e); ok && b.array == oid {
			return e, true
		}
	}
	return 0, false
}

// builtinOIDs lists the types that builtinOf knows.
func builtinOIDs() []uint32 {
	return []uint32{OIDBool, OIDBytea, OIDChar, OIDName, OIDInt8, OIDInt2, OIDInt4, OIDText, OIDOID, OIDTID,
		OIDJSON, OIDPoint, OIDLseg, OIDPath, OIDBox, OIDPolygon, OIDLine, OIDCIDR, OIDFloat4, OIDFloat8,
		OIDCircle, OIDMacaddr8, OIDMacaddr, OIDInet, OIDBpchar, OIDVarchar, OIDDate, OIDTime, OIDTimestamp,
		OIDTimestamptz, OIDInterval, OIDTimetz, OIDBit, OIDVarbit, OIDNumeric, OIDUUID, OIDPgLSN, OIDTsvector,
		OIDTsquery, OIDJSONB, OIDInt4range, OIDNumrange, OIDTsrange, OIDTstzrange, OIDDaterange, OIDInt8range,
		OIDJSONPath, OIDXID8, OIDInt4multirange, OIDNummultirange, OIDTsmultirange, OIDTstzmultirange,
		OIDDatemultirange, OIDInt8multirange, 142, 790}
}
