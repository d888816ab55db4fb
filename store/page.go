package store

import (
	"strings"

	"github.com/tranship-io/tranship/control"
)

// textCursor reads the cursor of a list that is sorted by a text; empty for the
// first page.
func textCursor(kind string, p control.Page) (string, error) {
	var key string
	_, err := control.DecodeCursor(kind, p.After, &key)
	return text(key), err
}

// numberCursor reads the cursor of a list that is sorted by a number; otherwise
// for the first page.
func numberCursor(kind string, p control.Page, otherwise int64) (int64, error) {
	n := otherwise
	_, err := control.DecodeCursor(kind, p.After, &n)
	return n, err
}

// text makes a caller's text one that the database takes: without zero bytes, in
// valid UTF-8. Nothing stored has either, so what is looked for is not found.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
