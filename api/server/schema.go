package server

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/tranship-io/tranship/control"
)

// problemsOf turns what a schema refuses into problems. Their texts never repeat
// a value: it may be a secret (invariant 10).
func problemsOf(err error) []control.Problem {
	var failed *jsonschema.ValidationError
	if !errors.As(err, &failed) {
		return []control.Problem{{Message: "it is not valid"}}
	}
	var out []control.Problem
	collect(failed, &out)
	slices.SortStableFunc(out, func(a, b control.Problem) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func collect(e *jsonschema.ValidationError, out *[]control.Problem) {
	if len(e.Causes) > 0 {
		for _, c := range e.Causes {
			collect(c, out)
		}
		return
	}
	at := pathOf(e.InstanceLocation)
	add := func(format string, args ...any) {
		*out = append(*out, control.Problem{Path: at, Message: fmt.Sprintf(format, args...)})
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			*out = append(*out, control.Problem{Path: join(at, name), Message: "it is missing"})
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			*out = append(*out, control.Problem{Path: join(at, printable(name)), Message: "there is no such field"})
		}
	case *kind.Type:
		add("want %s, not %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Enum:
		possible := make([]string, len(k.Want))
		for i, v := range k.Want {
			possible[i] = fmt.Sprint(v)
		}
		*out = append(*out, control.Problem{Path: at, Message: "it is none of the possible values", Hint: "possible: " + strings.Join(possible, ", ")})
	case *kind.Pattern:
		add("it does not match %s", k.Want)
	case *kind.Format:
		add("it is not a %s", k.Want)
	case *kind.MinLength:
		add("it is shorter than %d", k.Want)
	case *kind.MaxLength:
		add("it is longer than %d", k.Want)
	case *kind.MinItems:
		add("it has less than %d items", k.Want)
	case *kind.MaxItems:
		add("it has more than %d items", k.Want)
	case *kind.MaxProperties:
		add("it has more than %d fields", k.Want)
	case *kind.Minimum:
		add("it is less than %s", k.Want.RatString())
	case *kind.Maximum:
		add("it is more than %s", k.Want.RatString())
	default:
		add("it is not valid")
	}
}

// pathOf writes a place as problems do: edges[1].cursor.
func pathOf(location []string) string {
	out := ""
	for _, part := range location {
		if _, err := strconv.Atoi(part); err == nil {
			out += "[" + part + "]"
			continue
		}
		out = join(out, printable(part))
	}
	return out
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
