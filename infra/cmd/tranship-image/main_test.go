package main

import (
	"archive/zip"
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/stretchr/testify/require"
)

func TestTheSameProgramGivesTheSameImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create("bootstrap")
	require.NoError(t, err)
	_, err = w.Write([]byte("program"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	worker := filepath.Join(dir, "worker.zip")
	require.NoError(t, os.WriteFile(worker, b.Bytes(), 0o600))
	var digests []string
	for _, name := range []string{"a", "b"} {
		out := filepath.Join(dir, name)
		require.NoError(t, run(worker, "arm64", out))
		text, err := os.ReadFile(out + ".digest")
		require.NoError(t, err)
		digests = append(digests, string(text))
	}
	require.Equal(t, digests[0], digests[1])
	require.True(t, strings.HasPrefix(digests[0], "sha256:"))

	path, err := layout.FromPath(filepath.Join(dir, "a"))
	require.NoError(t, err)
	index, err := path.ImageIndex()
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	image, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "arm64", config.Architecture)
	require.Equal(t, []string{"/bootstrap"}, config.Config.Entrypoint)
	require.Equal(t, nobody, config.Config.User)

	require.True(t, x509.NewCertPool().AppendCertsFromPEM(roots()))
	require.ErrorContains(t, run(filepath.Join(dir, "none.zip"), "arm64", dir), "make functions")
}
