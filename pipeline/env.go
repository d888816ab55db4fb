package pipeline

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var (
	reference     = regexp.MustCompile(`\$\$\{|\$\{([^}]*)\}|\$\{`)
	referenceName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	secretName    = regexp.MustCompile(`(?i)passw|passphrase|pwd|secret|token|credential|api_?key|private_?key|^pass|_pass`)
)

// replaceEnv replaces ${NAME} in every scalar below n; $${ stands for a literal
// ${. lookup nil leaves references in place and checks only their form.
func (r *reader) replaceEnv(n *node, lookup func(string) (string, bool), secrets *[]string) {
	if n == nil {
		return
	}
	for _, c := range n.items {
		r.replaceEnv(c, lookup, secrets)
	}
	for _, e := range n.entries {
		r.replaceEnv(e.value, lookup, secrets)
	}
	if n.kind != kindString || !strings.Contains(n.raw, "${") || n.fromEnv {
		return
	}
	n.value = reference.ReplaceAllStringFunc(n.raw, func(m string) string {
		if m == "$${" {
			if lookup == nil {
				return m
			}
			return "${"
		}
		name := strings.TrimSuffix(strings.TrimPrefix(m, "${"), "}")
		if m == "${" || !referenceName.MatchString(name) {
			r.add(n.line, n.column, n.path, "write ${NAME}, or $${ for a literal ${", "a reference to the environment has no valid name")
			return m
		}
		if lookup == nil {
			return m
		}
		v, ok := lookup(name)
		if !ok {
			r.add(n.line, n.column, n.path, "export "+name+"=… before the command", "the environment variable %s is not set", name)
			return m
		}
		n.fromEnv = true
		if secretName.MatchString(name) && !strings.Contains(v, "://") {
			*secrets = append(*secrets, v)
		}
		return v
	})
	if n.fromEnv || (lookup != nil && strings.Contains(n.raw, "$${")) {
		*secrets = append(*secrets, passwordsOf(n.value)...)
	}
}

var (
	urlPassword = regexp.MustCompile(`://[^/?#\s@:]*:([^\s]*)@`)
	urlQuery    = regexp.MustCompile(`(?i)[?&][a-z_]*(?:password|secret|token|key)=([^&#\s]+)`)
	dsnPassword = regexp.MustCompile(`(?i)(?:^|\s)[a-z_]*(?:password|secret|token)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s]+)`)
)

// passwordsOf finds the passwords within a connection string, written as a URL
// or as key=value pairs, in the forms in which an error message could repeat
// them. It works on text that is no valid URL too: those are what errors quote.
func passwordsOf(s string) []string {
	var out []string
	for _, p := range []*regexp.Regexp{urlPassword, urlQuery, dsnPassword} {
		for _, m := range p.FindAllStringSubmatch(s, -1) {
			v := m[1]
			out = append(out, v, strings.Trim(v, "'"))
			if plain, err := url.PathUnescape(v); err == nil {
				out = append(out, plain)
			}
			if plain, err := url.QueryUnescape(v); err == nil {
				out = append(out, plain)
			}
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}
