package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/api/client"
	"github.com/tranship-io/tranship/engine"
)

// patience is how long a request is repeated that the server did not answer, or
// that it put off.
const patience = 30 * time.Second

// remote connects to the chosen server.
func (a *app) remote() (*client.Client, error) {
	target, err := a.needServer()
	if err != nil {
		return nil, err
	}
	key, err := target.key()
	if err != nil {
		return nil, err
	}
	a.redact.Add(key)
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, ResponseHeaderTimeout: 60 * time.Second,
	}
	doer := &patient{do: (&http.Client{Transport: transport, CheckRedirect: noRedirect}).Do, patience: patience}
	c, err := client.NewClient(target.URL, client.WithHTTPClient(doer), client.WithRequestEditorFn(
		func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+key)
			r.Header.Set("User-Agent", "tranship/"+a.version)
			return nil
		}))
	if err != nil {
		return nil, usageError("", "the address of the server cannot be used: %v", err)
	}
	return c, nil
}

// noRedirect keeps the key from travelling where a redirect points.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// patient repeats requests that had no effect or may be repeated: reads, and those
// with an idempotency key.
type patient struct {
	do       func(*http.Request) (*http.Response, error)
	patience time.Duration
}

// Do implements the client's doer.
func (p *patient) Do(r *http.Request) (*http.Response, error) {
	repeatable := r.Method == http.MethodGet || r.Header.Get("Idempotency-Key") != ""
	begun, wait := time.Now(), 250*time.Millisecond
	for {
		if r.GetBody != nil {
			body, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			r.Body = body
		}
		resp, err := p.do(r)
		pause := wait
		switch {
		case err != nil:
			if !repeatable || r.Context().Err() != nil {
				return nil, err
			}
		case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
			// The server did nothing, whatever was asked.
			if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
				pause = time.Duration(s) * time.Second
			}
		default:
			return resp, nil
		}
		if time.Since(begun)+pause > p.patience {
			return resp, err
		}
		if resp != nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(pause):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		wait = min(2*wait, 4*time.Second)
	}
}

// idempotency is a new key for a request that has an effect.
func idempotency() *string {
	key := uuid.NewString()
	return &key
}

// maxAnswer bounds what of an answer is read.
const maxAnswer = 64 << 20

// fetch returns an answer's value and its JSON, or what went wrong as an error with
// its exit code.
func fetch[T any](resp *http.Response, err error) (T, []byte, error) {
	var value T
	body, err := answer(resp, err)
	if err != nil {
		return value, nil, err
	}
	if err := json.Unmarshal(body, &value); err != nil {
		return value, nil, &exitError{exitFailed, fmt.Errorf("read the server's answer: %w", err)}
	}
	return value, body, nil
}

// answer returns the body of an answer that succeeded.
func answer(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return nil, err
		}
		return nil, &exitError{exitFailed, engine.Permanentf("is it running, and is the context right? tranship context list", "ask the server: %w", err)}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &exitError{exitFailed, fmt.Errorf("read the server's answer: %w", err)}
	}
	if resp.StatusCode < 300 {
		return body, nil
	}
	var p client.Problem
	if json.Unmarshal(body, &p) != nil || p.Title == "" {
		return nil, &exitError{exitFailed, engine.Permanentf("is there a Tranship server at this address?", "the server answered %s", resp.Status)}
	}
	return nil, &exitError{exitOf(p.Status), &remoteError{p}}
}

// remoteError is a problem that a server answered with.
type remoteError struct{ problem client.Problem }

func (e *remoteError) Error() string { return e.Unwrap().Error() }
func (e *remoteError) Unwrap() error { return problemError(e.problem) }

// exitOf is the exit code of a problem: what only another request mends is wrong use.
func exitOf(status int) int {
	switch status {
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusTooManyRequests:
		return exitFailed
	}
	if status >= 400 && status < 500 {
		return exitUsage
	}
	return exitFailed
}

// problemError writes a problem as an error, each of its parts on a line.
func problemError(p client.Problem) error {
	text := strings.ToLower(p.Title[:1]) + p.Title[1:]
	if p.Detail != "" && len(p.Errors) == 0 {
		text = p.Detail
	}
	if p.State != "" {
		text += " (state " + p.State + ")"
	}
	for _, e := range p.Errors {
		line := e.Message
		if e.Path != "" {
			line = e.Path + ": " + line
		}
		if e.Hint != "" {
			line += " (" + e.Hint + ")"
		}
		text += "\n  " + line
	}
	hint := p.Hint
	if p.Status >= 500 {
		hint = strings.TrimSpace(hint + " Request " + p.RequestId + ".")
	}
	return engine.Permanentf(hint, "%s", text)
}

// writeAnswer writes an answer's JSON as the server sent it, indented.
func (a *app) writeAnswer(body []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(body), "", "  "); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	_, err := a.stdout.Write(append(out.Bytes(), '\n'))
	return err
}

// listFlags are the flags of commands that list.
type listFlags struct {
	json  bool
	limit int
	after string
}

func (f *listFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.json, "json", false, "write the server's list as JSON: items, and next for --after")
	c.Flags().IntVar(&f.limit, "limit", 50, "at most so many, up to 500")
	c.Flags().StringVar(&f.after, "after", "", "go on behind an earlier part: its next")
}

// page is the flags as parameters.
func (f *listFlags) page() (limit *int, after *string) {
	limit = &f.limit
	if f.after != "" {
		after = &f.after
	}
	return limit, after
}

// more tells how to see what a table leaves out.
func (a *app) more(next *string) error {
	if next == nil {
		return nil
	}
	_, err := fmt.Fprintln(a.stderr, "there are more: --after "+*next)
	return err
}

// given is a pointer to a text that is not empty.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func whenAt(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return when(t)
}
