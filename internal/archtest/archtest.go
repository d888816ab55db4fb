// Package archtest keeps the rooms of the module apart: which package may import
// which stands in one table, and a test fails on any other import.
//
// Files are parsed rather than compiled, so that every build tag is checked and
// so that the test's cached result depends on all of them.
package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the module whose rooms are checked.
const Module = "github.com/tranship-io/tranship"

// room is a part of the module with rules of its own.
type room struct {
	// name is a folder; a last element * stands for each folder there, one room
	// each, that must not import one another.
	name string
	// may lists the rooms it may import besides itself. "*" means every room that
	// no other rule closes.
	may []string
	// testsMay lists what only its tests may import besides.
	testsMay []string
	// mayNot lists import paths from outside, with all below them.
	mayNot []string
}

// Rooms that several others may import.
var (
	dataPlane = []string{"engine", "events"}
	forTests  = []string{"internal/pgtest", "engine/enginetest", "examples"}
)

// rooms is the design's table. The longest matching name decides.
var rooms = []room{
	{name: "events"},
	{
		name:     "engine",
		may:      []string{"events"},
		testsMay: []string{"engine/enginetest"},
		mayNot:   []string{"github.com/jackc", "github.com/lib/pq", "github.com/aws", "modernc.org", "database/sql"},
	},
	// The shared suites are the engine's, but only tests have a use for them.
	{name: "engine/enginetest", may: dataPlane, mayNot: []string{"github.com/jackc", "github.com/aws", "modernc.org", "database/sql"}},
	{name: "pipeline", may: dataPlane, mayNot: []string{"github.com/jackc", "github.com/aws", "modernc.org", "database/sql"}},
	// A deterministic source and a place that swallows rows help to test any other
	// connector; that is all connectors may know of each other.
	{name: "connectors/*", may: dataPlane, testsMay: append([]string{"connectors/sample", "connectors/stdout"}, forTests...)},
	{name: "connectors/catalog", may: append([]string{"connectors/*"}, dataPlane...), testsMay: forTests},
	{name: "control", may: append([]string{"pipeline"}, dataPlane...), testsMay: forTests, mayNot: []string{"github.com/jackc", "github.com/aws"}},
	{name: "store/sqlite", may: append([]string{"pipeline"}, dataPlane...), testsMay: forTests},
	{name: "store", may: append([]string{"control", "pipeline"}, dataPlane...), testsMay: forTests, mayNot: []string{"github.com/aws"}},
	{name: "api/client"},
	{name: "api", may: append([]string{"control", "pipeline"}, dataPlane...), testsMay: append([]string{"api/client"}, forTests...)},
	{name: "internal/awsadapter", may: append([]string{"control"}, dataPlane...), testsMay: append([]string{"localstack/rig", "localstack/ecs"}, forTests...)},
	{name: "internal/compose/*", may: below(), testsMay: forTests},
	{name: "internal/compose/serve", may: append(below(), "internal/compose/*"), testsMay: append([]string{"api/client"}, forTests...)},
	// Parts of the functions; each links what it imports, so they are many packages.
	{name: "internal/compose/cloud", may: append(below(), "internal/compose/*"), testsMay: append([]string{"localstack/rig"}, forTests...)},
	{name: "functions/*", may: append(below(), "internal/compose/*", "internal/compose/cloud"), testsMay: append([]string{"api/client", "localstack/rig", "localstack/ecs", "internal/cloudtest"}, forTests...)},
	// An installation on emulated AWS for the tests of functions.
	{name: "internal/cloudtest", may: []string{"*"}},
	{name: "localstack", may: []string{"localstack/rig", "localstack/ecs", "events", "api/client", "internal/embedpg", "internal/pgtest"}, testsMay: forTests},
	// AWS for tests, as pgtest is PostgreSQL for them.
	{name: "localstack/rig"},
	{name: "localstack/ecs"},
	{
		name:     "cmd/tranship",
		may:      append(below(), "internal/compose/*", "internal/compose/serve", "api/client"),
		testsMay: forTests,
	},
	// What is never shipped: generators, harnesses, measurements, examples.
	{name: "internal", may: []string{"*"}},
	// Servers of the process's own: shipped by serve, used by pgtest.
	{name: "internal/embedpg"},
	// The last guard against secrets in what is told.
	{name: "internal/redact"},
	{name: "internal/pgtest", may: []string{"internal/embedpg"}},
	{name: "internal/archtest"},
	{name: "bench", may: []string{"*"}},
	{name: "docs", may: []string{"*"}},
	{name: "examples", may: []string{"*"}},
}

// below lists the rooms that a composition puts together.
func below() []string {
	return []string{
		"events", "engine", "pipeline", "connectors/*", "connectors/catalog",
		"control", "store", "store/sqlite", "api", "internal/awsadapter", "internal/embedpg", "internal/redact",
	}
}

// closed rooms are outside of what "*" means.
var closed = []string{"functions/*", "infra", "localstack"}

// Check parses every Go file of the module at root and returns a line for each
// import that the rooms forbid, sorted.
func Check(root, module string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if file != root && skipped(file, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		for _, imp := range parsed.Imports {
			to, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			if why := forbidden(rel, to, module); why != "" {
				found = append(found, fmt.Sprintf("%s imports %s: %s", rel, to, why))
			}
		}
		return nil
	})
	slices.Sort(found)
	return found, err
}

// skipped says which folders are not the module's: hidden ones, test data, and
// those with a module of their own.
func skipped(dir, name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "vendor" || name == "node_modules" {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// forbidden returns why a file must not import a path, or an empty string.
func forbidden(file, to, module string) string {
	from := path.Dir(file)
	rule, name := find(from)
	if rule == nil {
		return "the folder " + from + " belongs to no room of internal/archtest"
	}
	inner, ours := strings.CutPrefix(to, module+"/")
	if !ours {
		for _, p := range rule.mayNot {
			if to == p || strings.HasPrefix(to, p+"/") {
				return "room " + name + " must not know " + p
			}
		}
		return ""
	}
	target, targetName := find(inner)
	if target == nil {
		return "it belongs to no room of internal/archtest"
	}
	if targetName == name {
		return ""
	}
	may := rule.may
	if strings.HasSuffix(file, "_test.go") {
		may = append(slices.Clone(may), rule.testsMay...)
	}
	if slices.Contains(may, target.name) || slices.Contains(may, targetName) {
		return ""
	}
	if slices.Contains(may, "*") && !slices.Contains(closed, target.name) {
		return ""
	}
	return "room " + name + " must not import room " + targetName
}

// find returns the room of a folder and its name, in which * is filled in.
func find(folder string) (rule *room, name string) {
	for i := range rooms {
		r := &rooms[i]
		n, ok := match(r.name, folder)
		// At equal length a literal name beats a pattern.
		if ok && (rule == nil || len(n) > len(name) || len(n) == len(name) && !strings.HasSuffix(r.name, "*")) {
			rule, name = r, n
		}
	}
	return rule, name
}

func match(pattern, folder string) (name string, ok bool) {
	base, star := strings.CutSuffix(pattern, "/*")
	if !star {
		return pattern, folder == pattern || strings.HasPrefix(folder, pattern+"/")
	}
	rest, ok := strings.CutPrefix(folder, base+"/")
	if !ok {
		return "", false
	}
	first, _, _ := strings.Cut(rest, "/")
	return base + "/" + first, true
}
