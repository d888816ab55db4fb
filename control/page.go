package control

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
)

// MaxPage bounds the items of one part of a list.
const MaxPage = 500

// List is a part of a list.
type List[T any] struct {
	Items []T
	// Next is the cursor of what follows; empty: nothing does.
	Next string
}

// PageOf makes a part of a list of what a query for p.Size()+1 rows found; key
// gives the place of an item in the list's order.
func PageOf[T any](kind string, p Page, found []T, key func(T) any) List[T] {
	if len(found) <= p.Size() {
		return List[T]{Items: found}
	}
	found = found[:p.Size()]
	return List[T]{Items: found, Next: EncodeCursor(kind, key(found[len(found)-1]))}
}

// Size is the limit within its bounds.
func (p Page) Size() int {
	if p.Limit <= 0 {
		return 50
	}
	return min(p.Limit, MaxPage)
}

// CursorError tells that a cursor is none that this list gave out.
type CursorError struct{}

func (*CursorError) Error() string {
	return "the cursor is not one of this list: give next of the part before, unchanged"
}

// EncodeCursor makes the cursor of a list of a place in its order: what is sorted
// by, such as a time and an id. It is the same after inserts.
func EncodeCursor(kind string, key any) string {
	body, err := json.Marshal(key)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append([]byte(kind+"\n"), body...))
}

// DecodeCursor reads a cursor of the same kind into key; ok is false for the
// empty one, which is the beginning of the list. The error is a *CursorError.
func DecodeCursor(kind, cursor string, key any) (ok bool, err error) {
	if cursor == "" {
		return false, nil
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return false, &CursorError{}
	}
	head, body, found := bytes.Cut(text, []byte("\n"))
	if !found || string(head) != kind {
		return false, &CursorError{}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(key); err != nil || d.More() || bytes.ContainsRune(body, 0) || bytes.Contains(body, []byte(`\u0000`)) {
		return false, &CursorError{}
	}
	return true, nil
}
