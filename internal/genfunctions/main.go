// Command genfunctions builds the functions for AWS, each into a zip that is the
// same bytes whenever and wherever it is built from the same sources, and prints
// their sizes.
//
//	genfunctions [-arch arm64|amd64] [-dist dist] [-version text]
package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	arch := flag.String("arch", "arm64", "architecture: arm64 or amd64")
	dist := flag.String("dist", "dist", "folder for the zips, below which they are in functions")
	version := flag.String("version", "dev", "version that the functions tell")
	flag.Parse()
	if err := run(*arch, *dist, *version); err != nil {
		fmt.Fprintln(os.Stderr, "genfunctions:", err)
		os.Exit(1)
	}
}

func run(arch, dist, version string) (err error) {
	if arch != "arm64" && arch != "amd64" {
		return fmt.Errorf("architecture %q: Lambda has arm64 and amd64", arch)
	}
	names, err := functions("functions")
	if err != nil {
		return err
	}
	built, err := os.MkdirTemp("", "functions-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(built)) }()
	// lambda.norpc leaves out what only the runtimes of before provided.al2 need.
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags", "lambda.norpc", "-ldflags", "-s -w -buildid= -X main.version=" + version, "-o", built + "/"}
	for _, name := range names {
		args = append(args, "./functions/"+name)
	}
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the functions: %w", err)
	}
	out := filepath.Join(dist, "functions")
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	fmt.Printf("%-12s %12s %12s  (%s)\n", "function", "program MiB", "zip MiB", arch)
	for _, name := range names {
		program, err := os.ReadFile(filepath.Join(built, name))
		if err != nil {
			return err
		}
		archive, err := pack(program)
		if err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(out, name+".zip"), archive, 0o600); err != nil {
			return err
		}
		fmt.Printf("%-12s %12.1f %12.1f\n", name, float64(len(program))/(1<<20), float64(len(archive))/(1<<20))
	}
	return nil
}

// functions lists the functions, sorted: each folder with a program.
func functions(folder string) ([]string, error) {
	mains, err := filepath.Glob(filepath.Join(folder, "*", "main.go"))
	if err != nil {
		return nil, err
	}
	if len(mains) == 0 {
		return nil, fmt.Errorf("there are no functions in %s: call this in the root of the checkout", folder)
	}
	names := make([]string, len(mains))
	for i, m := range mains {
		names[i] = filepath.Base(filepath.Dir(m))
	}
	slices.Sort(names)
	return names, nil
}

// epoch is the time of every file: the first that a zip can hold.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// pack makes a zip with the program as the runtime expects it.
func pack(program []byte) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	h := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate, Modified: epoch}
	h.SetMode(0o755)
	w, err := z.CreateHeader(h)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
