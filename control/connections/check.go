package connections

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/pipeline"
)

// NamePattern is the form of names of connections and pipelines.
var NamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

var variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

// Spec returns the spec of a connector in a role.
func Spec(c Catalog, role Role, connector string) (engine.Spec, bool) {
	specs := specsOf(c, role)
	i := slices.IndexFunc(specs, func(s engine.Spec) bool { return s.Name == connector })
	if i < 0 {
		return engine.Spec{}, false
	}
	return specs[i], true
}

func specsOf(c Catalog, role Role) []engine.Spec {
	if role == Source {
		return c.SourceSpecs()
	}
	return c.SinkSpecs()
}

// problems collects what is wrong.
type problems []control.Problem

func (p *problems) add(path, hint, format string, args ...any) {
	*p = append(*p, control.Problem{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// Check returns every problem of a draft; have is the connection as it is, nil for
// a new one. No message repeats a value that could be a secret.
func Check(c Catalog, providers []string, d Draft, have *Connection) []control.Problem {
	var p problems
	if !NamePattern.MatchString(d.Name) {
		p.add("name", "use 1 to 63 letters, digits, dots, dashes and underscores, and begin with a letter or digit", "%q is not a name", d.Name)
	}
	if d.Role != Source && d.Role != Sink {
		p.add("role", "source or sink", "%q is not a role", d.Role)
		return p
	}
	spec, ok := Spec(c, d.Role, d.Connector)
	if !ok {
		var names []string
		for _, s := range specsOf(c, d.Role) {
			names = append(names, s.Name)
		}
		p.add("connector", "connectors: "+strings.Join(names, ", "), "there is no %s connector %q", d.Role, d.Connector)
		return p
	}
	if have != nil && (have.Role != d.Role || have.Connector != d.Connector) {
		p.add("connector", "create another connection", "a connection stays a %s of %s", have.Role, have.Connector)
	}
	checkConfig(&p, spec, d)
	checkSecrets(&p, spec, providers, d)
	return p
}

func checkConfig(p *problems, spec engine.Spec, d Draft) {
	tree, err := readTree(d.Config)
	if err != nil {
		p.add("config", "", "%v", err)
		return
	}
	fields := pipeline.SecretFields(spec)
	for _, f := range fields {
		if _, is := lookUp(tree, f); is {
			p.add("config."+f, "store it as a secret and refer to it under secrets", "this field is a secret and does not belong into the configuration")
			drop(tree, f)
		}
	}
	for path, text := range texts(tree, "") {
		if len(pipeline.PasswordsIn(text)) > 0 {
			p.add("config."+path, "put the secret part into a field of its own: "+strings.Join(fields, ", "), "the value holds a password and would be shown")
		}
	}
	whole, err := assemble(tree, paths(d))
	if err != nil {
		p.add("config", "", "%v", err)
		return
	}
	for _, x := range pipeline.CheckConfig(whole, spec) {
		p.add(strings.TrimSuffix("config."+x.Path, "."), x.Hint, "%s", x.Message)
	}
}

// paths are a draft's secret fields, each standing for any value.
func paths(d Draft) map[string]string {
	out := map[string]string{}
	for path := range d.Secrets {
		out[path] = "${SECRET}"
	}
	for path := range d.Values {
		out[path] = "${SECRET}"
	}
	return out
}

func checkSecrets(p *problems, spec engine.Spec, providers []string, d Draft) {
	known := pipeline.SecretFields(spec)
	for _, path := range slices.Sorted(maps.Keys(paths(d))) {
		if !slices.Contains(known, path) {
			p.add("secrets."+path, "secret fields: "+strings.Join(known, ", "), "the connector %s has no such secret field", spec.Name)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(d.Secrets)) {
		if _, both := d.Values[path]; both {
			p.add("secrets."+path, "keep one of them", "a reference and a value are given")
			continue
		}
		ref, err := secrets.Parse(string(d.Secrets[path]))
		switch {
		case err != nil:
			p.add("secrets."+path, "write <provider>:<name>, such as env:SHOP_URL", "this is no reference to a secret")
		case !slices.Contains(providers, ref.Provider()):
			p.add("secrets."+path, "providers: "+strings.Join(providers, ", "), "this installation has no provider %q", ref.Provider())
		}
	}
	for _, path := range slices.Sorted(maps.Keys(d.Values)) {
		if v := d.Values[path]; v == "" || len(v) > secrets.MaxValue {
			p.add("secrets."+path, "", "a secret has 1 to %d bytes", secrets.MaxValue)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(d.Variables)) {
		if v := d.Variables[path]; v != "" && !variablePattern.MatchString(v) {
			p.add("variables."+path, "letters, digits and underscores", "this is not the name of an environment variable")
		}
	}
}
