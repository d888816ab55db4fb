// Command gendocs writes the documents and schemas that follow from the code:
// docs/pipeline.md, docs/connectors/*.md and docs/schema/*.json. It is run at the
// module's root; the same code always gives the same files.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/tranship-io/tranship/connectors/catalog"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

// run writes every generated file below root, and removes documents of
// connectors that are gone.
func run(root string) error {
	files, err := generate(root, catalog.New(io.Discard))
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(root, "docs", "connectors", "*.md"))
	if err != nil {
		return err
	}
	for _, path := range old {
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if _, keep := files[filepath.ToSlash(rel)]; !keep {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}
