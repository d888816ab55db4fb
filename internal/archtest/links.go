package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// lean lists what programs must not link, however far away: what a function links
// it loads whenever it starts, and can be attacked through.
var lean = []struct {
	program string
	not     []string
}{
	{"functions/authorizer", []string{"store", "connectors", "pipeline", "engine", "internal/compose/cloud/database", "github.com/jackc", "github.com/aws/aws-sdk-go-v2/service/sqs"}},
	{"functions/api", []string{"engine/runner", "internal/compose/ends", "internal/compose/worker"}},
	{"functions/compile", []string{"connectors", "engine/runner"}},
	{"functions/deliver", []string{"connectors", "engine/runner"}},
	{"functions/dispatch", []string{"connectors", "engine/runner"}},
	{"functions/migrate", []string{"connectors", "engine/runner"}},
	{"functions/project", []string{"connectors", "engine/runner"}},
	{"functions/sweep", []string{"connectors", "engine/runner"}},
}

// CheckLinks follows the imports of the programs of the module at root and returns
// a line for each that links what it must not, with the way there. Programs that
// are not there are left out.
func CheckLinks(root, module string) ([]string, error) {
	var found []string
	for _, l := range lean {
		if _, err := os.Stat(filepath.Join(root, l.program)); err != nil {
			continue
		}
		seen := map[string]bool{}
		var follow func(folder string, way []string) error
		follow = func(folder string, way []string) error {
			imports, err := importsOf(filepath.Join(root, folder))
			if err != nil {
				return err
			}
			for _, to := range imports {
				inner, ours := strings.CutPrefix(to, module+"/")
				if seen[to] {
					continue
				}
				seen[to] = true
				if slices.ContainsFunc(l.not, func(n string) bool { return inner == n || strings.HasPrefix(inner, n+"/") }) {
					found = append(found, fmt.Sprintf("%s must not link %s: %s", l.program, inner, strings.Join(append(way, inner), " > ")))
					continue
				}
				if ours {
					if err := follow(inner, append(slices.Clone(way), inner)); err != nil {
						return err
					}
				}
			}
			return nil
		}
		if err := follow(l.program, []string{l.program}); err != nil {
			return nil, err
		}
	}
	slices.Sort(found)
	return found, nil
}

// importsOf lists what the files of a folder import, without its tests.
func importsOf(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return nil, err
		}
		for _, i := range parsed.Imports {
			to, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return nil, err
			}
			out = append(out, to)
		}
	}
	return out, nil
}
