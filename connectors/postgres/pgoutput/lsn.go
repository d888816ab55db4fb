package pgoutput

import (
	"fmt"
	"strconv"
	"strings"
)

// String writes the position as the server does: 16/B374D848.
func (l LSN) String() string { return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l)) }

// Sortable writes it so that positions sort as text: 0000001600000000.
func (l LSN) Sortable() string { return fmt.Sprintf("%016X", uint64(l)) }

// ParseLSN reads what [LSN.String] writes.
func ParseLSN(s string) (LSN, error) {
	high, low, ok := strings.Cut(s, "/")
	h, herr := strconv.ParseUint(high, 16, 32)
	l, lerr := strconv.ParseUint(low, 16, 32)
	if !ok || herr != nil || lerr != nil {
		return 0, fmt.Errorf("%q is no position in a write-ahead log, such as 16/B374D848", s)
	}
	return LSN(h<<32 | l), nil
}

// MarshalText implements [encoding.TextMarshaler].
func (l LSN) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *LSN) UnmarshalText(b []byte) (err error) {
	*l, err = ParseLSN(string(b))
	return err
}
