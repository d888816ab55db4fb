package invoke

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/inspections"
)

// A function is called without waiting for it; that it cannot be called is logged,
// and the sweep's business.
func TestBegin(t *testing.T) {
	type call struct{ kind, path, body string }
	calls := make(chan call, 10)
	status := http.StatusAccepted
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			calls <- call{r.Header.Get("X-Amz-Invocation-Type"), r.URL.Path, string(body)}
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	c := aws.Config{Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("x", "x", ""), RetryMaxAttempts: 1}
	r := inspections.Ref{Organization: uuid.Must(uuid.NewV7()), ID: uuid.Must(uuid.NewV7())}
	begin := NewInspections(c, "inspect", slog.New(slog.DiscardHandler))
	begin.Begin(t.Context(), r)
	got := <-calls
	require.Equal(t, "Event", got.kind)
	require.Equal(t, "/2015-03-31/functions/inspect/invocations", got.path)
	require.JSONEq(t, `{"organization":"`+r.Organization.String()+`","inspection":"`+r.ID.String()+`"}`, got.body)
	status = http.StatusForbidden
	begin.Begin(t.Context(), r)
	require.Len(t, calls, 1)
}
