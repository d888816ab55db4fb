package pipeline

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// MinMemory is the least memory with which the engine's own structures leave
// room for rows in flight.
const MinMemory Size = 32 << 20

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// at adds a problem at a key of the mapping n, or at n itself if it has no such key.
func (d *decoder) at(n *node, key, hint, format string, args ...any) {
	place, path := n, n.path
	if key != "" {
		path = strings.TrimPrefix(path+"."+key, ".")
		if v := n.get(key); v != nil {
			place = v
		}
	}
	d.add(place.line, place.column, path, hint, format, args...)
}

// check finds what is wrong beyond the form of single values.
func (d *decoder) check(root *node, doc *Document, opt Options) {
	if doc.Name != "" && !strings.Contains(doc.Name, "${") && !namePattern.MatchString(doc.Name) {
		d.at(root, "name", "use 1 to 63 letters, digits, dots, dashes and underscores, and begin with a letter or digit", "%s is not a pipeline name", root.get("name").shown())
	}
	d.checkSettings(root.get("settings"), doc.Settings)
	if doc.Defaults.Policies != nil {
		d.checkPolicies(root.get("defaults"), *doc.Defaults.Policies, doc.Defaults.SetAside)
	}
	d.checkSetAside(root.get("defaults"), doc.Defaults.SetAside)
	list := root.get("resources")
	if list == nil || list.kind != kindList {
		return
	}
	if len(list.items) == 0 {
		d.at(root, "resources", "list at least one, or a pattern such as public.*", "no resource is listed")
	}
	first := map[string]int{}
	for i, r := range doc.Resources {
		if i >= len(list.items) || list.items[i].kind != kindMap {
			if i < len(list.items) && list.items[i].kind == kindNull {
				d.problem(list.items[i], `write {name: …}`, "the entry is empty")
			}
			continue
		}
		n := list.items[i]
		d.checkResource(n, doc, r, opt)
		ref := r.Ref()
		if ref == "" {
			continue
		}
		if before, twice := first[ref]; twice {
			if before == 0 {
				d.at(n, "name", "", "%q is listed twice", ref)
			} else {
				d.at(n, "name", "", "%q is listed twice; the first is in line %d", ref, before)
			}
			continue
		}
		first[ref] = n.line
	}
}

func (d *decoder) checkSettings(n *node, s Settings) {
	if n == nil || n.kind != kindMap {
		return
	}
	if s.Memory != 0 && s.Memory < MinMemory {
		d.at(n, "memory", "", "%s is too little: at least %s is needed", s.Memory, MinMemory)
	}
}

func (d *decoder) checkResource(n *node, doc *Document, r Resource, opt Options) {
	switch {
	case r.Name == "" && r.Pattern == "":
		d.at(n, "", "", `the key "name" is missing`)
		return
	case r.Name != "" && r.Pattern != "":
		d.at(n, "pattern", "keep one of them", "name and pattern exclude each other")
	case r.Pattern != "" && !hasWildcard(r.Pattern):
		d.at(n, "pattern", "write it as name, or use * or ?", "%q holds no wildcard", r.Pattern)
	}
	if _, err := splitName(r.Ref()); err != nil {
		key := "name"
		if r.Name == "" {
			key = "pattern"
		}
		d.at(n, key, "", "%v", err)
	}
	if !r.IsPattern() {
		if len(r.Exclude) > 0 {
			d.at(n, "exclude", "", "exclude belongs to a pattern, and %q is a single resource", r.Name)
		}
		if r.Views {
			d.at(n, "views", "", "views belongs to a pattern, and %q is a single resource", r.Name)
		}
	} else if r.Target != "" {
		d.at(n, "target", "name the resource in an entry of its own", "a pattern cannot write all that it matches to one target")
	}
	for i, x := range r.Exclude {
		if _, err := splitName(x); err != nil {
			d.at(n, fmt.Sprintf("exclude[%d]", i), "", "%v", err)
		}
	}
	d.checkModes(n, doc, r, opt)
	d.checkColumns(n, r)
	if r.Policies != nil {
		aside := r.SetAside
		if aside == "" {
			aside = doc.Defaults.SetAside
		}
		d.checkPolicies(n, *r.Policies, aside)
	}
	d.checkSetAside(n, r.SetAside)
	if o := n.get("options"); o != nil && o.kind != kindMap && o.kind != kindNull {
		d.at(n, "options", "", "want a mapping of keys, not %s", o.kind)
	}
}

func (d *decoder) checkModes(n *node, doc *Document, r Resource, opt Options) {
	sink, known := findSpec(opt.Sinks, doc.Sink.Connector)
	read, write := doc.Modes(r, nil)
	if known {
		read, write = doc.Modes(r, &sink)
	}
	if read == engine.ReadIncremental && r.Cursor == "" {
		d.at(n, "cursor", "tranship inspect "+r.Ref()+" ranks the columns", "an incremental read needs a cursor column")
	}
	d.checkChanges(n, r, read, write)
	if read != engine.ReadIncremental {
		if r.Cursor != "" {
			d.at(n, "cursor", "add read: incremental, or remove the cursor", "a %s read uses no cursor", read)
		}
		if r.Lookback != 0 {
			d.at(n, "lookback", "add read: incremental, or remove the lookback", "a %s read uses no lookback", read)
		}
	}
	if read == engine.ReadIncremental && write == engine.WriteReplace {
		d.at(n, "write", "use write: upsert or append", "an incremental read of new rows cannot replace the whole content")
	}
	if s, ok := findSpec(opt.Sources, doc.Source.Connector); ok && !slices.Contains(s.Reads, read) {
		d.at(n, "read", fmt.Sprintf("it reads: %v", s.Reads), "the source %s cannot read %s", s.Name, read)
	}
	if known && !slices.Contains(sink.Writes, write) {
		d.at(n, "write", fmt.Sprintf("it writes: %v", sink.Writes), "the sink %s cannot write %s", sink.Name, write)
	}
}

// checkChanges finds what does not go with changes, or only with them.
func (d *decoder) checkChanges(n *node, r Resource, read engine.ReadMode, write engine.WriteMode) {
	changes := read == engine.ReadCDC
	switch {
	case changes && write != engine.WriteMerge && write != engine.WriteAppend:
		d.at(n, "write", "use write: merge, or append for a log of changes", "changes cannot be written by %s", write)
	case !changes && write == engine.WriteMerge:
		d.at(n, "write", "use write: upsert, or read: cdc", "only changes (read: cdc) can be merged")
	case !changes && r.Initial != "":
		d.at(n, "initial", "add read: cdc, or remove it", "initial belongs to changes (read: cdc)")
	}
	if changes && r.Where != "" {
		d.at(n, "where", "replicate the whole table, or use read: incremental", "changes cannot be filtered: a row that leaves the filter would stay")
	}
}

func findSpec(specs []engine.Spec, name string) (engine.Spec, bool) {
	i := slices.IndexFunc(specs, func(s engine.Spec) bool { return s.Name == name })
	if i < 0 {
		return engine.Spec{}, false
	}
	return specs[i], true
}

// Modes returns the modes in effect for a resource. Without a write mode a full
// read replaces, changes are merged, and an incremental read upserts if the sink
// can, else appends; sink may be nil: then upsert.
func (d *Document) Modes(r Resource, sink *engine.Spec) (engine.ReadMode, engine.WriteMode) {
	read := r.Read
	if read == "" {
		read = d.Defaults.Read
	}
	if read == "" {
		read = engine.ReadFull
	}
	write := r.Write
	if write == "" && (r.Read == "" || read == engine.ReadFull || d.Defaults.Write != engine.WriteReplace) {
		// A default of replace is meant for full reads: an entry that asks for
		// an incremental one does not inherit it.
		write = d.Defaults.Write
	}
	if write == "" {
		switch {
		case read == engine.ReadFull:
			write = engine.WriteReplace
		case read == engine.ReadCDC:
			write = engine.WriteMerge
		case sink == nil || slices.Contains(sink.Writes, engine.WriteUpsert):
			write = engine.WriteUpsert
		default:
			write = engine.WriteAppend
		}
	}
	return read, write
}

func (d *decoder) checkColumns(n *node, r Resource) {
	d.checkNames(n, "key", r.Key)
	if r.Columns == nil {
		return
	}
	c := n.get("columns")
	if c == nil || c.kind != kindMap {
		return
	}
	d.checkNames(c, "include", r.Columns.Include)
	d.checkNames(c, "exclude", r.Columns.Exclude)
	needed := append(slices.Clone(r.Key), r.Cursor)
	for _, col := range needed {
		if col == "" {
			continue
		}
		if slices.Contains(r.Columns.Exclude, col) || (len(r.Columns.Include) > 0 && !slices.Contains(r.Columns.Include, col)) {
			d.at(c, "", "", "the column %q is left out, but key or cursor needs it", col)
		}
	}
	for _, col := range r.Columns.Include {
		if slices.Contains(r.Columns.Exclude, col) {
			d.at(c, "exclude", "", "the column %q is both included and excluded", col)
		}
	}
}

func (d *decoder) checkNames(n *node, key string, names []string) {
	for i, name := range names {
		if name == "" {
			d.at(n, key, "", "an empty column name")
		}
		if slices.Contains(names[:i], name) {
			d.at(n, key, "", "the column %q is here twice", name)
		}
	}
}

func (d *decoder) checkPolicies(n *node, p Policies, aside string) {
	if n == nil || n.kind != kindMap {
		return
	}
	uses := p.Default == engine.PolicySetAside
	for _, v := range p.Columns {
		uses = uses || v == engine.PolicySetAside
	}
	if uses && aside == "" {
		d.at(n, "set_aside", "add set_aside: file:./aside.jsonl, or table:<schema>.<name>", "the policy set_aside needs a place")
	}
}

func (d *decoder) checkSetAside(n *node, s string) {
	if s == "" || strings.Contains(s, "${") {
		return
	}
	kind, rest, _ := strings.Cut(s, ":")
	if (kind != "table" && kind != "file") || rest == "" {
		d.at(n, "set_aside", "write table:<schema>.<name> or file:<path>", "%s names no place", n.get("set_aside").shown())
	}
}
