package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

// request makes a request of what API Gateway passes on. The stage is not part of
// its path.
func request(ctx context.Context, e events.APIGatewayProxyRequest) (*http.Request, error) {
	body := []byte(e.Body)
	if e.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(e.Body); err != nil {
			return nil, fmt.Errorf("decode the request's body: %w", err)
		}
	}
	u := url.URL{Path: e.Path}
	query := url.Values(e.MultiValueQueryStringParameters)
	if len(query) == 0 {
		query = url.Values{}
		for k, v := range e.QueryStringParameters {
			query.Set(k, v)
		}
	}
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, e.HTTPMethod, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	for k, values := range e.MultiValueHeaders {
		for _, v := range values {
			r.Header.Add(k, v)
		}
	}
	if len(e.MultiValueHeaders) == 0 {
		for k, v := range e.Headers {
			r.Header.Set(k, v)
		}
	}
	if r.Header.Get("X-Request-Id") == "" {
		r.Header.Set("X-Request-Id", e.RequestContext.RequestID)
	}
	r.Host = r.Header.Get("Host")
	r.RemoteAddr = e.RequestContext.Identity.SourceIP
	r.RequestURI = u.RequestURI()
	return r, nil
}

// answer collects what a handler writes. It implements [http.ResponseWriter].
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// response is the answer as API Gateway takes it: text as it is, anything else in
// base64.
func (a *answer) response() events.APIGatewayProxyResponse {
	a.WriteHeader(http.StatusOK)
	out := events.APIGatewayProxyResponse{StatusCode: a.status, MultiValueHeaders: map[string][]string{}}
	for k, values := range a.header {
		if !strings.EqualFold(k, "Content-Length") {
			out.MultiValueHeaders[k] = values
		}
	}
	if utf8.Valid(a.body.Bytes()) {
		out.Body = a.body.String()
	} else {
		out.Body, out.IsBase64Encoded = base64.StdEncoding.EncodeToString(a.body.Bytes()), true
	}
	return out
}
