package pgsink

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// maxName is NAMEDATALEN − 1: the server cuts longer names without an error.
const maxName = 63

// fitName makes a name of at most 63 bytes. A longer one is cut between two
// characters and ends in a hash of the whole, so that it is the same on every
// run and two long names stay two (case 09).
func fitName(name string) string {
	if len(name) <= maxName {
		return name
	}
	suffix := "_" + hash(name)[:8]
	cut := maxName - len(suffix)
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + suffix
}

// hash is a short name for a list of parts: 64 hex digits.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// checkName refuses what can't be a name at all.
func checkName(what, name string) error {
	switch {
	case name == "":
		return engine.Permanentf("give it a name in the pipeline", "%s has an empty name", what)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return engine.Permanentf("map it to another name in the pipeline",
			"%s %q can't be a name in PostgreSQL: it is not UTF-8 or holds a NUL", what, name)
	}
	return nil
}

// parseName splits a dotted name into its parts; a part in double quotes keeps
// its dots (`"s.t"."a.b"`).
func parseName(name string) ([]string, error) {
	var parts []string
	rest := name
	for {
		var part string
		if strings.HasPrefix(rest, `"`) {
			end := 1
			for {
				i := strings.IndexByte(rest[end:], '"')
				if i < 0 {
					return nil, engine.Permanentf("close the quote", "name %s has a quote that does not end", name)
				}
				end += i + 1
				if !strings.HasPrefix(rest[end:], `"`) {
					break
				}
				end++
			}
			part, rest = strings.ReplaceAll(rest[1:end-1], `""`, `"`), rest[end:]
			if rest != "" && rest[0] != '.' {
				return nil, engine.Permanentf("put a dot between the parts of a name", "name %s goes on after a quote", name)
			}
		} else if i := strings.IndexByte(rest, '.'); i >= 0 {
			part, rest = rest[:i], rest[i:]
		} else {
			part, rest = rest, ""
		}
		parts = append(parts, part)
		if rest == "" {
			return parts, nil
		}
		rest = rest[1:]
	}
}

// place is a table's schema and name.
type place struct{ Schema, Table string }

func (p place) sql() string { return qualified(p.Schema, p.Table) }

// String writes the place as messages and plans do: quoted only where needed.
func (p place) String() string { return plain(p.Schema) + "." + plain(p.Table) }

func plain(name string) string {
	for i, r := range name {
		if r >= 'a' && r <= 'z' || r == '_' || i > 0 && r >= '0' && r <= '9' {
			continue
		}
		return ident(name)
	}
	return name
}

// placeOf derives a target from the parts of a resource's name: the schema that
// the sink names, else the source's, else public.
func placeOf(path []string, schemaOption string) place {
	p := place{Schema: schemaOption, Table: path[len(path)-1]}
	if p.Schema == "" && len(path) > 1 {
		p.Schema = path[len(path)-2]
	}
	if p.Schema == "" {
		p.Schema = "public"
	}
	return place{Schema: fitName(p.Schema), Table: fitName(p.Table)}
}

// placeFor finds the resource's target and refuses one that another resource of
// the run is mapped to as well (case 09 b).
func placeFor(req *engine.TargetRequest, schemaOption string) (place, error) {
	path := req.Plan.Resource.Path
	if len(path) == 0 {
		var err error
		if path, err = parseName(req.Plan.Resource.Name); err != nil {
			return place{}, err
		}
	}
	p := placeOf(path, schemaOption)
	if req.Target != "" {
		parts, err := parseName(req.Target)
		if err != nil {
			return place{}, err
		}
		switch len(parts) {
		case 1:
			p.Table = fitName(parts[0])
		case 2:
			p = place{Schema: fitName(parts[0]), Table: fitName(parts[1])}
		default:
			return place{}, engine.Permanentf("write it as schema.table; quote a part that contains a dot",
				"target %s of %s has %d parts", req.Target, req.Plan.Resource.Name, len(parts))
		}
	}
	for _, n := range []string{p.Schema, p.Table} {
		if err := checkName("target of "+req.Plan.Resource.Name, n); err != nil {
			return place{}, err
		}
	}
	for _, other := range req.Others {
		if other == req.Plan.Resource.Name {
			continue
		}
		path, err := parseName(other)
		if err != nil {
			// The other resource's own plan says what is wrong with its name.
			continue
		}
		if placeOf(path, schemaOption) == p {
			return place{}, collision(req.Plan.Resource.Name, other, p)
		}
	}
	return p, nil
}

func collision(one, two string, p place) error {
	return engine.Permanentf("give one of them a target of its own in the pipeline",
		"resources %s and %s would both be written to table %s", one, two, p)
}

// columnNames maps the columns of a schema to names in the target; overrides
// go by source name.
func columnNames(resource string, s *schema.Schema, overrides map[string]string) ([]string, error) {
	names := make([]string, len(s.Fields))
	taken := make(map[string]string, len(s.Fields))
	for from := range overrides {
		if s.Index(from) < 0 {
			return nil, engine.Permanentf("correct the name", "%s has no column %q to rename", resource, from)
		}
	}
	for i, f := range s.Fields {
		n := f.Name
		if o, ok := overrides[f.Name]; ok {
			n = o
		}
		if err := checkName(fmt.Sprintf("column %q of %s", f.Name, resource), n); err != nil {
			return nil, err
		}
		n = fitName(n)
		if other, ok := taken[n]; ok {
			return nil, engine.Permanentf("rename one of them in the pipeline",
				"columns %q and %q of %s would both be named %q", other, f.Name, resource, n)
		}
		taken[n] = f.Name
		names[i] = n
	}
	return names, nil
}

// stagingForm is what names of staging look like: the route and resource, the
// run, the generation, and the table's name for people (P7).
var stagingForm = regexp.MustCompile(`^_tranship_[0-9a-f]{12}_[0-9a-f]{8}_[0-9]+_`)

// stagingRoute is the part of a staging's name that is its route's and resource's.
func stagingRoute(k key) string { return hash(k.installation, k.route, k.resource)[:12] }

// routeOfStaging returns it from the name.
func routeOfStaging(name string) string {
	return strings.TrimPrefix(name, "_tranship_")[:12]
}

// ofRoute and ofRun tell whether a table is staging of the target's route and
// resource, and of its run, whatever the generation.
func ofRoute(t *engine.Target, name string) bool {
	return stagingForm.MatchString(name) && routeOfStaging(name) == stagingRoute(keyOf(t))
}

func ofRun(t *engine.Target, name string) bool {
	return stagingForm.MatchString(name) && strings.HasPrefix(name, runPrefix(t))
}

// stagingFor tells whether a table is staging, of whatever route, for a table of
// this name.
func stagingFor(name, table string) bool {
	head := stagingForm.FindString(name)
	return head != "" && name == cutName(head+table)
}

func runPrefix(t *engine.Target) string {
	return "_tranship_" + stagingRoute(keyOf(t)) + "_" + hash(t.RunID)[:8] + "_"
}

// stagingName names staging by route, resource, run and generation.
func stagingName(t *engine.Target, table string) string {
	return cutName(fmt.Sprintf("%s%d_%s", runPrefix(t), t.Generation, table))
}

func cutName(name string) string {
	cut := min(len(name), maxName)
	for cut < len(name) && cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut]
}

// routeKey is a short name of pipeline, source and sink.
func routeKey(r engine.Route) string { return hash(r.Pipeline, r.Source, r.Sink)[:32] }
