package pgsource

import (
	"path"
	"strings"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

// defaultSchema is where a name without a schema is looked for.
const defaultSchema = "public"

// resourceName writes schema and relation as pipelines do: parts joined by a dot,
// a part in quotes where it holds a character that means something in names.
func resourceName(schema, name string) string { return quotePart(schema) + "." + quotePart(name) }

func quotePart(s string) string {
	if s == "" || strings.ContainsAny(s, `."*?[\`) || strings.TrimSpace(s) != s {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	return s
}

// qualified writes the relation for SQL.
func qualified(schema, name string) string {
	return pgconf.QuoteIdent(schema) + "." + pgconf.QuoteIdent(name)
}

// part is one part of a name or pattern; a quoted one is taken literally.
type part struct {
	text   string
	quoted bool
}

// matches tells whether a name fits; an unquoted part may hold * ? and [classes].
func (p part) matches(name string) bool {
	if p.quoted || !strings.ContainsAny(p.text, "*?[") {
		return p.text == name
	}
	// Names may hold slashes, which path.Match would stop at.
	ok, err := path.Match(strings.ReplaceAll(p.text, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

func (p part) literal() bool { return p.quoted || !strings.ContainsAny(p.text, "*?[") }

// pattern is a resource name or a pattern of names.
type pattern struct{ schema, name part }

func (p pattern) matches(schema, name string) bool {
	return p.schema.matches(schema) && p.name.matches(name)
}

// literal tells whether the pattern names one resource.
func (p pattern) literal() bool { return p.schema.literal() && p.name.literal() }

// parsePattern reads `orders`, `public.orders`, `public.*` or `"s.t"."a.b"`.
func parsePattern(s string) (pattern, error) {
	parts, ok := splitName(s)
	switch {
	case ok && len(parts) == 1:
		return pattern{part{text: defaultSchema}, parts[0]}, nil
	case ok && len(parts) == 2:
		return pattern{parts[0], parts[1]}, nil
	}
	return pattern{}, engine.Permanentf(`write it as schema.table; a part that holds a dot goes in double quotes: "s.t"."a.b"`,
		"resource name %q can't be read", s)
}

func splitName(s string) ([]part, bool) {
	var parts []part
	for {
		var p part
		if rest, ok := strings.CutPrefix(s, `"`); ok {
			text, after, ok := cutQuoted(rest)
			if !ok {
				return nil, false
			}
			p, s = part{text: text, quoted: true}, after
		} else {
			i := strings.IndexByte(s, '.')
			if i < 0 {
				i = len(s)
			}
			p, s = part{text: s[:i]}, s[i:]
			if strings.Contains(p.text, `"`) {
				return nil, false
			}
		}
		if p.text == "" {
			return nil, false
		}
		parts = append(parts, p)
		if s == "" {
			return parts, true
		}
		var ok bool
		if s, ok = strings.CutPrefix(s, "."); !ok {
			return nil, false
		}
	}
}

// cutQuoted reads up to the closing quote; a doubled quote stands for one.
func cutQuoted(s string) (text, rest string, ok bool) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '"')
		if i < 0 {
			return "", "", false
		}
		b.WriteString(s[:i])
		s = s[i+1:]
		if !strings.HasPrefix(s, `"`) {
			return b.String(), s, true
		}
		b.WriteByte('"')
		s = s[1:]
	}
}
