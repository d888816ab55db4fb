package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Env reads the environment of a function, as docs/aws.md lists it. What is
// missing or wrong is collected, so that [Env.Err] tells all of it at once.
type Env struct {
	lookup func(name string) (string, bool)
	errs   []error
}

// NewEnv reads by lookup, such as os.LookupEnv.
func NewEnv(lookup func(name string) (string, bool)) *Env { return &Env{lookup: lookup} }

// Get returns a variable, or usual if it is not set or empty.
func (e *Env) Get(name, usual string) string {
	if v, ok := e.lookup(name); ok && strings.TrimSpace(v) != "" {
		return strings.TrimSpace(v)
	}
	return usual
}

// Need returns a variable that must be set.
func (e *Env) Need(name string) string {
	v := e.Get(name, "")
	if v == "" {
		e.Fail(name, "it is not set")
	}
	return v
}

// Duration returns a variable that is a duration such as 60s, greater than 0.
func (e *Env) Duration(name string, usual time.Duration) time.Duration {
	text := e.Get(name, "")
	if text == "" {
		return usual
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		e.Fail(name, "it is no duration such as 60s")
		return usual
	}
	return d
}

// Int returns a variable that is a number greater than 0.
func (e *Env) Int(name string, usual int) int {
	text := e.Get(name, "")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		e.Fail(name, "it is no number greater than 0")
		return usual
	}
	return n
}

// JSON decodes a variable if it is set; unknown fields are refused.
func (e *Env) JSON(name string, into any) {
	text := e.Get(name, "")
	if text == "" {
		return
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		e.Fail(name, fmt.Sprintf("it cannot be read as JSON: %v", err))
	}
}

// Fail notes what is wrong with a variable. The text must not repeat a value that
// may be secret (invariant 10).
func (e *Env) Fail(name, why string) {
	e.errs = append(e.errs, fmt.Errorf("the environment variable %s: %s", name, why))
}

// Err tells what was missing or wrong so far, or nil.
func (e *Env) Err() error { return errors.Join(e.errs...) }
