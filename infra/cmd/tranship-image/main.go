// Command tranship-image makes the image of the Fargate task without Docker: an
// empty base, the root certificates of Mozilla, and the worker's program.
//
//	tranship-image -worker dist/functions/worker.zip -arch arm64 -out dist/image
//
// It writes an OCI layout, and its digest into the file of the same name with
// .digest. The same program gives the same digest.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	worker := flag.String("worker", "dist/functions/worker.zip", "zip of the function worker")
	arch := flag.String("arch", "arm64", "architecture: arm64 or amd64")
	out := flag.String("out", "dist/image", "folder for the OCI layout")
	flag.Parse()
	if err := run(*worker, *arch, *out); err != nil {
		fmt.Fprintln(os.Stderr, "tranship-image:", err)
		os.Exit(1)
	}
}

func run(worker, arch, out string) error {
	program, err := programOf(worker)
	if err != nil {
		return err
	}
	image, err := build(program, arch)
	if err != nil {
		return fmt.Errorf("build the image: %w", err)
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	path, err := layout.Write(out, empty.Index)
	if err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	platform := v1.Platform{OS: "linux", Architecture: arch}
	if err := path.AppendImage(image, layout.WithPlatform(platform)); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	fmt.Printf("%s %s\n", filepath.Base(out), digest)
	return os.WriteFile(out+".digest", []byte(digest.String()+"\n"), 0o600)
}

// programOf takes the program out of a function's zip.
func programOf(file string) (program []byte, err error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return nil, fmt.Errorf("open %s (make functions builds it): %w", file, err)
	}
	defer func() { err = errors.Join(err, z.Close()) }()
	f, err := z.Open("bootstrap")
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	return io.ReadAll(f)
}

// epoch is the time of everything in the image.
var epoch = time.Unix(0, 0).UTC()

// nobody is the user of the task.
const nobody = "65534:65534"

// build makes the image: one layer of root certificates, which changes seldom, and
// one of the program.
func build(program []byte, arch string) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, "application/vnd.oci.image.manifest.v1+json")
	image = mutate.ConfigMediaType(image, "application/vnd.oci.image.config.v1+json")
	for _, f := range []struct {
		name string
		mode int64
		body []byte
	}{
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots()},
		{"bootstrap", 0o755, program},
	} {
		archive, err := tarOf(f.name, f.mode, f.body)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil })
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: f.name}})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: epoch}
	config.Config = v1.Config{Entrypoint: []string{"/bootstrap"}, User: nobody, Env: []string{"PATH=/"}}
	return mutate.ConfigFile(image, config)
}

// roots are Mozilla's root certificates, as PEM.
func roots() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
	}
	return b.Bytes()
}

func tarOf(name string, mode int64, body []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(body)), ModTime: epoch, Typeflag: tar.TypeReg}); err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	return b.Bytes(), w.Close()
}
