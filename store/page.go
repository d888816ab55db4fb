package store

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/tranship-io/tranship/control"
)

// Sizes of pages.
const (
	defaultPage = 50
	maxPage     = 500
)

// pageSize bounds the size that a caller asks for.
func pageSize(p control.Page) int32 {
	switch {
	case p.Limit <= 0:
		return defaultPage
	case p.Limit > maxPage:
		return maxPage
	}
	return int32(p.Limit)
}

// cursor makes the opaque cursor after a key.
func cursor(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// cursorKey reads a cursor; empty for the first page.
func cursorKey(p control.Page) (string, error) {
	key, err := base64.RawURLEncoding.DecodeString(p.After)
	if err != nil || strings.ContainsRune(string(key), 0) {
		return "", control.Invalid("after", "give what the page before returned as next", "this is no cursor")
	}
	return strings.ToValidUTF8(string(key), ""), nil
}

// cursorNumber reads a cursor that is a number; otherwise for the first page.
func cursorNumber(p control.Page, otherwise int64) (int64, error) {
	if p.After == "" {
		return otherwise, nil
	}
	key, err := cursorKey(p)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return 0, control.Invalid("after", "give what the page before returned as next", "this is no cursor")
	}
	return n, nil
}

// cut makes a page of what was found, one more than its size: the items, and the
// cursor after the last of them if there are more.
func cut[T any](found []T, size int32, key func(T) string) (items []T, next string) {
	if len(found) <= int(size) {
		return found, ""
	}
	found = found[:size]
	return found, cursor(key(found[size-1]))
}
