// Command licences fails if a module that the project's packages or tests import
// is not under a permissive licence.
//
//	licences -module DIR
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// permissive maps a licence to words of its grant, in lower case and with single
// spaces. Only these may be used: copyleft licences, weak ones included, may not,
// because users link the engine into programs of their own.
var permissive = map[string]string{
	"Apache-2.0": "apache license version 2.0",
	"MIT":        "permission is hereby granted, free of charge, to any person obtaining a copy",
	"BSD":        "redistribution and use in source and binary forms, with or without modification, are permitted",
	"ISC":        "with or without fee is hereby granted",
	"Unlicense":  "this is free and unencumbered software released into the public domain",
	"CC0-1.0":    "cc0 1.0 universal",
	"Zlib":       "permission is granted to anyone to use this software for any purpose",
	"SQLite":     "all of the code and documentation in sqlite has been dedicated to the public domain",
}

// refused are words that no permissive licence file holds.
var refused = []string{
	"general public license", "mozilla public license", "eclipse public license",
	"common development and distribution", "server side public license",
	"business source license", "elastic license", "commons clause",
	"attribution-noncommercial", "european union public licence",
}

// reviewed holds licence files that the words above judge wrongly, by module and
// file, with what a person read in them.
var reviewed = map[string]string{
	"github.com/opencontainers/go-digest/LICENSE.docs": "of its documentation; the code is under LICENSE",
	"github.com/xi2/xz/LICENSE":                        "public domain",
	"modernc.org/memory/LICENSE-LOGO":                  "the origin of a picture that is not compiled",
	"modernc.org/sqlite/LICENSE-3RD-PARTY.md":          "repeats the licences of its module graph; what we import of it is judged by itself",
}

// testOnly holds modules under weak copyleft that nothing but tests may import:
// nothing of them is linked into what users build.
var testOnly = map[string]string{
	"pgregory.net/rapid": "MPL-2.0",
}

type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

func main() {
	dir := flag.String("module", ".", "folder of the module to check")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	modules, err := imported(dir, true)
	if err != nil {
		return err
	}
	shipped, err := imported(dir, false)
	if err != nil {
		return err
	}
	if len(modules) == 0 {
		return errors.New("no dependency found: wrong folder?")
	}
	var bad []string
	for _, m := range modules {
		if _, ok := testOnly[m.Path]; ok && !slices.ContainsFunc(shipped, func(s module) bool { return s.Path == m.Path }) {
			continue
		}
		found, err := objection(m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		if found != "" {
			bad = append(bad, fmt.Sprintf("%s %s: %s", m.Path, m.Version, found))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("not permissive, or unknown:\n  %s", strings.Join(bad, "\n  "))
	}
	fmt.Printf("licences: %d modules, all permissive but what tests alone import\n", len(modules))
	return nil
}

// imported lists the modules that the packages of dir, and their tests if asked,
// really use; the module graph holds many more.
func imported(dir string, tests bool) ([]module, error) {
	cmd := exec.Command("go", "list", "-deps", fmt.Sprintf("-test=%t", tests), "-json=Module", "./...")
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	seen := map[string]bool{}
	var modules []module
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ Module *module }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		m := p.Module
		if m == nil || m.Main || seen[m.Path] {
			continue
		}
		seen[m.Path] = true
		if m.Replace != nil {
			m.Dir = m.Replace.Dir
		}
		modules = append(modules, *m)
	}
	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}

// objection returns what is wrong with the licence files at a module's root.
func objection(m module) (string, error) {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return "", err
	}
	files := 0
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") && !strings.HasPrefix(name, "UNLICENSE") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Dir, e.Name()))
		if err != nil {
			return "", err
		}
		files++
		if _, ok := reviewed[m.Path+"/"+e.Name()]; ok {
			continue
		}
		if why := judge(string(text)); why != "" {
			return e.Name() + ": " + why, nil
		}
	}
	if files == 0 {
		return "no licence file", nil
	}
	return "", nil
}

// judge returns why a licence's text is not acceptable, or an empty string.
func judge(text string) string {
	text = strings.Join(strings.Fields(strings.ToLower(strings.ReplaceAll(text, ",", ", "))), " ")
	text = strings.ReplaceAll(text, "apache license, version", "apache license version")
	for _, words := range refused {
		if strings.Contains(text, words) {
			return words
		}
	}
	for _, words := range permissive {
		if strings.Contains(text, words) {
			return ""
		}
	}
	return "unknown text"
}
