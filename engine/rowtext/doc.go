// Package rowtext writes values in flight as text and as JSON, exactly, and
// reads them back. It is what text formats, messages and rows set aside share.
//
// Text of each kind:
//
//	bool                 true, false
//	integers, decimals   all digits, never an exponent
//	floats               the shortest digits that read back; NaN, Infinity, -Infinity
//	string, enum, json   as it is
//	bytes                base64
//	date                 2024-01-02, with ISO 8601 expanded years before year 1 and
//	                     after 9999 (-0043-03-15 is 44 BC); infinity, -infinity
//	time                 15:04:05, with 6 or 9 digits of fraction unless it is zero; 24:00:00
//	timestamp            2024-01-02T15:04:05.678901, with a Z if it is an instant
//	interval             P1Y2M3DT4H5M6.7S, each part with its own sign
//	uuid                 8-4-4-4-12 hex digits
//	array                JSON, see below
//
// JSON has numbers for numbers, values for json and jsonb (on one line), arrays
// for arrays, nested by dimension, and strings for the rest. Numbers that are
// none are strings. JSON elements of arrays are strings, so that nesting always
// means dimensions. An array with a lower bound other than 1 is an object
// {"lower":[…],"values":[…]}.
package rowtext
