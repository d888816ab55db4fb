package main

import (
	"encoding/base64"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"
)

func TestRequest(t *testing.T) {
	t.Parallel()
	e := events.APIGatewayProxyRequest{
		HTTPMethod: "POST", Path: "/v1/pipelines/a b", Body: base64.StdEncoding.EncodeToString([]byte("\x00body")), IsBase64Encoded: true,
		MultiValueQueryStringParameters: map[string][]string{"state": {"running", "failed"}, "q": {"ü&=#"}},
		MultiValueHeaders:               map[string][]string{"content-type": {"application/json"}, "Accept": {"a", "b"}},
		RequestContext:                  events.APIGatewayProxyRequestContext{RequestID: "req-1", Identity: events.APIGatewayRequestIdentity{SourceIP: "192.0.2.1"}},
	}
	r, err := request(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, "/v1/pipelines/a b", r.URL.Path)
	require.Equal(t, []string{"running", "failed"}, r.URL.Query()["state"])
	require.Equal(t, "ü&=#", r.URL.Query().Get("q"))
	require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	require.Equal(t, []string{"a", "b"}, r.Header.Values("Accept"))
	require.Equal(t, "req-1", r.Header.Get("X-Request-Id"))
	require.Equal(t, "192.0.2.1", r.RemoteAddr)
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, "\x00body", string(body))

	e.Body = "%"
	_, err = request(t.Context(), e)
	require.Error(t, err)
	r, err = request(t.Context(), events.APIGatewayProxyRequest{HTTPMethod: "GET", Path: "/", Headers: map[string]string{"X-Request-Id": "mine"}, QueryStringParameters: map[string]string{"a": "1"}})
	require.NoError(t, err)
	require.Equal(t, "mine", r.Header.Get("X-Request-Id"))
	require.Equal(t, "1", r.URL.Query().Get("a"))
}

func TestResponse(t *testing.T) {
	t.Parallel()
	a := &answer{header: http.Header{"Content-Length": {"3"}, "Etag": {"x"}}}
	a.WriteHeader(http.StatusAccepted)
	a.WriteHeader(http.StatusOK)
	_, err := a.Write([]byte("text"))
	require.NoError(t, err)
	require.Equal(t, events.APIGatewayProxyResponse{StatusCode: 202, MultiValueHeaders: map[string][]string{"Etag": {"x"}}, Body: "text"}, a.response())
	a = &answer{header: http.Header{}}
	_, err = a.Write([]byte{0xff, 0})
	require.NoError(t, err)
	out := a.response()
	require.True(t, out.IsBase64Encoded)
	require.Equal(t, "/wA=", out.Body)
	require.Equal(t, 200, out.StatusCode)
}
