package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// Selected is one resource of a source with the entry that chose it.
type Selected struct {
	// Resource is the resource as discovered.
	Resource engine.Resource
	// Entry is the document's entry, its name replaced by the resource's.
	Entry Resource
	// By is the name or pattern as the document has it.
	By string
}

// Patterns are what a source is asked to discover for this document.
func (d *Document) Patterns() []string {
	out := make([]string, len(d.Resources))
	for i, r := range d.Resources {
		out[i] = r.Ref()
	}
	return out
}

// Expand chooses the document's resources out of those that the source offers,
// in the order of the document and, within a pattern, of their names. An entry
// with a plain name wins over patterns. Entries that match nothing, and
// resources that two patterns match, are permanent errors, all in one.
func (d *Document) Expand(found []engine.Resource) ([]Selected, error) {
	found = slices.Clone(found)
	slices.SortFunc(found, func(a, b engine.Resource) int { return strings.Compare(a.Name, b.Name) })
	e := expansion{doc: d, found: found, explicit: map[string]int{}, taken: map[string]string{}}
	for i, entry := range d.Resources {
		if !entry.IsPattern() {
			e.resolve(i, entry)
		}
	}
	var out []Selected
	for i, entry := range d.Resources {
		if entry.IsPattern() {
			out = append(out, e.match(i, entry)...)
			continue
		}
		for _, r := range found {
			if owner, ok := e.explicit[r.Name]; ok && owner == i {
				out = append(out, selected(entry, r))
			}
		}
	}
	if len(e.problems) > 0 {
		return nil, &Error{Problems: e.problems}
	}
	return out, nil
}

func selected(entry Resource, r engine.Resource) Selected {
	by := entry.Ref()
	entry.Name, entry.Pattern, entry.Exclude, entry.Views = r.Name, "", nil, false
	return Selected{Resource: r, Entry: entry, By: by}
}

type expansion struct {
	doc      *Document
	found    []engine.Resource
	explicit map[string]int
	taken    map[string]string
	problems []Problem
}

func (e *expansion) problem(i int, hint, format string, args ...any) {
	e.problems = append(e.problems, Problem{Path: fmt.Sprintf("resources[%d]", i), Message: fmt.Sprintf(format, args...), Hint: hint})
}

// resolve finds the resource that a plain name means.
func (e *expansion) resolve(i int, entry Resource) {
	parts, err := splitName(entry.Name)
	if err != nil {
		e.problem(i, "", "%v", err)
		return
	}
	at := slices.IndexFunc(e.found, func(r engine.Resource) bool { return r.Name == entry.Name })
	if at < 0 {
		at = slices.IndexFunc(e.found, func(r engine.Resource) bool { return samePath(parts, r.Path) })
	}
	if at < 0 {
		var names []string
		for _, r := range e.found {
			names = append(names, r.Name)
			if len(parts) == 1 && len(r.Path) > 1 && r.Path[len(r.Path)-1] == parts[0].text {
				e.problem(i, fmt.Sprintf("did you mean %q?", r.Name), "the source has no resource %q", entry.Name)
				return
			}
		}
		hint := "tranship discover lists what there is; the user of the connection may lack the right to see it"
		if near := nearest(entry.Name, names); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		e.problem(i, hint, "the source has no resource %q", entry.Name)
		return
	}
	name := e.found[at].Name
	if before, twice := e.explicit[name]; twice {
		e.problem(i, "", "%q is the same resource as resources[%d]", entry.Name, before)
		return
	}
	e.explicit[name] = i
}

// match returns what a pattern stands for.
func (e *expansion) match(i int, entry Resource) []Selected {
	parts, err := splitName(entry.Ref())
	if err != nil {
		e.problem(i, "", "%v", err)
		return nil
	}
	var exclude [][]namePart
	for _, x := range entry.Exclude {
		p, err := splitName(x)
		if err != nil {
			e.problem(i, "", "exclude: %v", err)
			return nil
		}
		exclude = append(exclude, p)
	}
	var out []Selected
	matched, views := 0, 0
	for _, r := range e.found {
		if !matches(parts, r.Path) {
			continue
		}
		if strings.Contains(r.Kind, "view") && !entry.Views {
			views++
			continue
		}
		matched++
		if slices.ContainsFunc(exclude, func(x []namePart) bool { return matches(x, r.Path) }) {
			continue
		}
		if _, explicit := e.explicit[r.Name]; explicit {
			continue
		}
		if by, twice := e.taken[r.Name]; twice {
			e.problem(i, "exclude it from one of them", "%q is matched by %q and by %q", r.Name, by, entry.Ref())
			continue
		}
		e.taken[r.Name] = entry.Ref()
		out = append(out, selected(entry, r))
	}
	switch {
	case matched == 0 && views > 0:
		e.problem(i, "add views: true", "the pattern %q matches nothing but %d views", entry.Ref(), views)
	case matched == 0:
		e.problem(i, "tranship discover lists what there is; the user of the connection may lack the right to see it", "the pattern %q matches nothing", entry.Ref())
	}
	return out
}
