package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
)

func TestPushIsByDigestAndMayBeRepeated(t *testing.T) {
	var writes int
	handler := registry.New()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
			writes++
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	image, err := random.Image(1000, 2)
	require.NoError(t, err)
	folder := t.TempDir()
	path, err := layout.Write(folder, empty.Index)
	require.NoError(t, err)
	require.NoError(t, path.AppendImage(image))

	repository := strings.TrimPrefix(server.URL, "http://") + "/tranship-worker"
	require.NoError(t, pushTo(repository, folder, remote.WithContext(t.Context())))
	require.NoError(t, pushTo(repository, folder, remote.WithContext(t.Context())))
	require.Equal(t, 1, writes)

	require.NoError(t, path.AppendImage(image))
	require.ErrorContains(t, pushTo(repository, folder), "2 images, not one")
	require.ErrorContains(t, pushTo(repository, filepath.Join(folder, "none")), "make image")
}

// lambdaServer answers for Lambda: the function is active, and answers with a body.
func lambdaServer(t *testing.T, functionError, body string) aws.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/invocations") {
			if functionError != "" {
				w.Header().Set("X-Amz-Function-Error", functionError)
			}
			_, _ = io.WriteString(w, body)
			return
		}
		_, _ = io.WriteString(w, `{"Configuration":{"State":"Active","LastUpdateStatus":"Successful"}}`)
	}))
	t.Cleanup(server.Close)
	return aws.Config{Region: "eu-west-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")}
}

func TestMigrateTellsWhyTheFunctionFailed(t *testing.T) {
	require.NoError(t, migrate(t.Context(), lambdaServer(t, "", `{"version":3}`), "tranship-migrate"))
	err := migrate(t.Context(), lambdaServer(t, "Unhandled", `{"errorMessage":"the database is newer"}`), "tranship-migrate")
	require.ErrorContains(t, err, "the database is newer")
}

func TestOutputs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "outputs.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"t-migrate":{"MigrateFunction":"f"}}`), 0o644))
	out, err := readOutputs(file, "t-migrate")
	require.NoError(t, err)
	require.Equal(t, "f", out["MigrateFunction"])
	_, err = readOutputs(file, "t-app")
	require.ErrorContains(t, err, "no stack")
	require.ErrorContains(t, run(t.Context(), []string{"undo", "-outputs", file, "-stack", "t-migrate"}), "push or migrate")
}
