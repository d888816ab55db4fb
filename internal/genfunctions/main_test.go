package main

import (
	"archive/zip"
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestZipsAreReproducible(t *testing.T) {
	t.Parallel()
	program := bytes.Repeat([]byte("program "), 1000)
	a, err := pack(program)
	require.NoError(t, err)
	b, err := pack(program)
	require.NoError(t, err)
	require.Equal(t, a, b)
	z, err := zip.NewReader(bytes.NewReader(a), int64(len(a)))
	require.NoError(t, err)
	require.Len(t, z.File, 1)
	require.Equal(t, "bootstrap", z.File[0].Name)
	require.EqualValues(t, 0o755, z.File[0].Mode().Perm())
	require.True(t, z.File[0].Modified.Equal(epoch))
	r, err := z.File[0].Open()
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, program, got)
}

func TestEveryFunctionIsFound(t *testing.T) {
	t.Parallel()
	names, err := functions("../../functions")
	require.NoError(t, err)
	require.Subset(t, names, []string{"api", "authorizer", "migrate", "project", "sweep", "worker"})
	_, err = functions("nowhere")
	require.ErrorContains(t, err, "root of the checkout")
	require.ErrorContains(t, run("riscv", "dist", "x"), "riscv")
}
