package pipeline

import (
	"fmt"
	"strings"
)

// namePart is one part of a resource's name or pattern, unquoted. A quoted part
// is taken literally, wildcards included.
type namePart struct {
	text   string
	quoted bool
}

// splitName cuts a name at its dots outside double quotes; "" within quotes is
// one quote.
func splitName(s string) ([]namePart, error) {
	var parts []namePart
	rest := s
	for {
		var p namePart
		if strings.HasPrefix(rest, `"`) {
			p.quoted = true
			rest = rest[1:]
			for {
				i := strings.IndexByte(rest, '"')
				if i < 0 {
					return nil, fmt.Errorf("the name %s has a quote that does not end", s)
				}
				p.text += rest[:i]
				rest = rest[i+1:]
				if !strings.HasPrefix(rest, `"`) {
					break
				}
				p.text += `"`
				rest = rest[1:]
			}
		} else {
			i := strings.IndexByte(rest, '.')
			if i < 0 {
				i = len(rest)
			}
			p.text, rest = rest[:i], rest[i:]
			if strings.Contains(p.text, `"`) {
				return nil, fmt.Errorf("the name %s has a quote within a part; quote the whole part", s)
			}
		}
		if p.text == "" {
			return nil, fmt.Errorf("the name %q has an empty part", s)
		}
		parts = append(parts, p)
		if rest == "" {
			return parts, nil
		}
		if !strings.HasPrefix(rest, ".") {
			return nil, fmt.Errorf("the name %s goes on after a closing quote", s)
		}
		rest = rest[1:]
	}
}

// hasWildcard tells whether a name stands for more than itself.
func hasWildcard(s string) bool {
	parts, err := splitName(s)
	if err != nil {
		return strings.ContainsAny(s, "*?")
	}
	for _, p := range parts {
		if !p.quoted && strings.ContainsAny(p.text, "*?") {
			return true
		}
	}
	return false
}

func samePath(parts []namePart, path []string) bool {
	if len(parts) != len(path) {
		return false
	}
	for i, p := range parts {
		if p.text != path[i] {
			return false
		}
	}
	return true
}

// matches tells whether a pattern stands for a path: part by part, and a lone *
// for everything.
func matches(parts []namePart, path []string) bool {
	if len(parts) == 1 && parts[0].text == "*" && !parts[0].quoted {
		return true
	}
	if len(parts) != len(path) {
		return false
	}
	for i, p := range parts {
		if p.quoted && p.text != path[i] || !p.quoted && !glob(p.text, path[i]) {
			return false
		}
	}
	return true
}

// glob matches * (any run of characters) and ? (one character) in time that is
// at most the product of both lengths.
func glob(pattern, s string) bool {
	p, r := []rune(pattern), []rune(s)
	star, resume := -1, 0
	i, j := 0, 0
	for j < len(r) {
		switch {
		case i < len(p) && p[i] == '*':
			star, resume = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == r[j]):
			i, j = i+1, j+1
		case star >= 0:
			resume++
			i, j = star+1, resume
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}
