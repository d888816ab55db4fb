package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strconv"
	"sync"
)

// redactor is the last guard of invariant 10: connectors keep secrets out of
// their messages, and whatever they overlook is replaced in all output.
type redactor struct {
	mu      sync.RWMutex
	secrets [][]byte
}

// mask stands where a secret was.
var mask = []byte("***")

// shortest is the length below which a secret is not looked for: replacing one
// or two letters everywhere would only make output unreadable.
const shortest = 3

// add learns secrets, in every form in which they could be printed.
func (r *redactor) add(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range secrets {
		forms := []string{s, url.QueryEscape(s), url.PathEscape(s), trimQuotes(strconv.Quote(s))}
		// A quoted form may be quoted once more: an error's text within JSON.
		for _, f := range forms {
			if b, err := json.Marshal(f); err == nil {
				forms = append(forms, trimQuotes(string(b)))
			}
			forms = append(forms, trimQuotes(strconv.Quote(f)))
		}
		for _, f := range forms {
			if len(f) >= shortest && !slices.ContainsFunc(r.secrets, func(b []byte) bool { return string(b) == f }) {
				r.secrets = append(r.secrets, []byte(f))
			}
		}
	}
	// Longest first, so that no part of a longer secret stays behind.
	slices.SortStableFunc(r.secrets, func(a, b []byte) int { return len(b) - len(a) })
}

func trimQuotes(s string) string { return s[1 : len(s)-1] }

func (r *redactor) clean(b []byte) []byte {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.secrets {
		if bytes.Contains(b, s) {
			b = bytes.ReplaceAll(b, s, mask)
		}
	}
	return b
}

func (r *redactor) writer(w io.Writer) io.Writer { return &redactingWriter{r: r, out: w} }

type redactingWriter struct {
	r   *redactor
	mu  sync.Mutex
	out io.Writer
}

// Write cleans what it is given; callers write whole lines.
func (w *redactingWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.out.Write(w.r.clean(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}
