// Package redact replaces secrets in what a process tells. It is the last guard of
// invariant 10: connectors keep secrets out of their messages, and whatever they
// overlook is replaced here.
package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"slices"
	"strconv"
	"sync"
)

// Redactor knows secrets. The zero value knows none; it may be used by many at once.
type Redactor struct {
	mu      sync.RWMutex
	secrets [][]byte
}

// mask stands where a secret was.
var mask = []byte("***")

// shortest is the length below which a secret is not looked for: replacing one
// or two letters everywhere would only make output unreadable.
const shortest = 3

// Add learns secrets, in every form in which they could be printed.
func (r *Redactor) Add(secrets ...string) {
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

// Clean returns b with a mask in the place of each secret. It may return b itself.
func (r *Redactor) Clean(b []byte) []byte {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.secrets {
		if bytes.Contains(b, s) {
			b = bytes.ReplaceAll(b, s, mask)
		}
	}
	return b
}

// Text is Clean for texts.
func (r *Redactor) Text(s string) string { return string(r.Clean([]byte(s))) }

// Error returns err, or if its text holds a secret one of the cleaned text, which
// is no longer of err's type.
func (r *Redactor) Error(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); r.Text(text) != text {
		return errors.New(r.Text(text))
	}
	return err
}

// Writer cleans what is written to Out. Callers write whole lines.
type Writer struct {
	Redactor *Redactor
	Out      io.Writer

	mu sync.Mutex
}

// Write implements [io.Writer].
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.Out.Write(w.Redactor.Clean(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}
