package pgsink

import (
	"strings"
)

// The one place where SQL is built from names and texts.

// ident quotes a name, always: a keyword, a dot or a quote in it is just a letter.
func ident(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// qualified quotes a name in a schema.
func qualified(schema, name string) string { return ident(schema) + "." + ident(name) }

// literal quotes a text; standard_conforming_strings is pinned on, so a
// backslash means itself.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// idents quotes names and joins them with commas, each behind an optional prefix
// such as "s.".
func idents(prefix string, names []string) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(prefix)
		b.WriteString(ident(n))
	}
	return b.String()
}

// each joins what f makes of every name.
func each(names []string, sep string, f func(quoted string) string) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = f(ident(n))
	}
	return strings.Join(parts, sep)
}
