package runs

import (
	"fmt"
	"math"
	"time"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/engine"
)

// Policy is what a pipeline says about the lives of its runs; a run keeps the
// policy that it was accepted under. The zero value is the default.
type Policy struct {
	Retry Retry `json:"retry,omitzero"`
	// TimeLimit is the longest life of a run from its first attempt on, pauses
	// included; 0: none.
	TimeLimit time.Duration `json:"time_limit,omitempty"`
	// NoProgress is the longest time without a moved checkpoint while the run is
	// running; 0: none.
	NoProgress time.Duration `json:"no_progress,omitempty"`
	// Compute is where attempts run: "" or "auto" leaves it to the installation.
	Compute string `json:"compute,omitempty"`
	// Slots is how many workers' places an attempt takes; 0 means 2, the engine's
	// own default.
	Slots int `json:"slots,omitempty"`
	// Memory bounds an attempt in bytes; 0 leaves it to the installation.
	Memory int64 `json:"memory,omitempty"`
}

// Retry says how failed attempts are followed by others. An interruption (a lost
// worker) is no failed attempt. A permanent error or a bug is never tried again.
type Retry struct {
	// Attempts is how many failed attempts end the run; 0 means 3.
	Attempts int `json:"attempts,omitempty"`
	// Wait precedes the second attempt and doubles with each failure up to
	// MaxWait; 0 means 10 s and 10 min.
	Wait    time.Duration `json:"wait,omitempty"`
	MaxWait time.Duration `json:"max_wait,omitempty"`
}

// Defaults of [Retry], and the number of interruptions in a row without progress
// that fail a run (P24).
const (
	DefaultAttempts  = 3
	DefaultWait      = 10 * time.Second
	DefaultMaxWait   = 10 * time.Minute
	MaxInterruptions = 3
)

// MaxRetryAttempts bounds Retry.Attempts.
const MaxRetryAttempts = 1000

func (r Retry) withDefaults() Retry {
	if r.Attempts <= 0 {
		r.Attempts = DefaultAttempts
	}
	if r.Wait <= 0 {
		r.Wait = DefaultWait
	}
	if r.MaxWait <= 0 {
		r.MaxWait = max(DefaultMaxWait, r.Wait)
	}
	return r
}

// Check returns every problem of a policy, with paths below prefix.
func (p Policy) Check(prefix string) []control.Problem {
	var out []control.Problem
	add := func(path, hint, format string, args ...any) {
		out = append(out, control.Problem{Path: prefix + path, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if p.Retry.Attempts < 0 || p.Retry.Attempts > MaxRetryAttempts {
		add("retry.attempts", "", "%d is not between 1 and %d", p.Retry.Attempts, MaxRetryAttempts)
	}
	if p.Retry.MaxWait != 0 && p.Retry.MaxWait < p.Retry.Wait {
		add("retry.max_wait", "", "it is shorter than wait")
	}
	for _, d := range []struct {
		path  string
		value time.Duration
	}{{"retry.wait", p.Retry.Wait}, {"retry.max_wait", p.Retry.MaxWait}, {"time_limit", p.TimeLimit}, {"no_progress_limit", p.NoProgress}} {
		if d.value < 0 {
			add(d.path, "", "a duration cannot be negative")
		}
	}
	return out
}

// backoff is the wait after the n-th failure (from 1); random is in [0, 1) and
// takes up to a quarter off, so that runs that failed together part.
func (r Retry) backoff(n int, random float64) time.Duration {
	r = r.withDefaults()
	wait := float64(r.Wait) * math.Pow(2, float64(min(n-1, 40)))
	return time.Duration(min(wait, float64(r.MaxWait)) * (1 - random/4))
}

// again tells whether an attempt follows the n-th failure, of a class.
func (r Retry) again(n int, class engine.Class) bool {
	return class == engine.Retryable && n < r.withDefaults().Attempts
}

// Limit returns why the run may not go on, or an empty string.
func (r *Run) Limit() string {
	if d := r.Policy.TimeLimit; d > 0 && !r.StartedAt.IsZero() && r.Now.Sub(r.StartedAt) >= d {
		return fmt.Sprintf("the time limit of %s is over", d)
	}
	if d := r.Policy.NoProgress; d > 0 && !r.StartedAt.IsZero() && r.Now.Sub(r.moved()) >= d {
		return fmt.Sprintf("no progress for %s", d)
	}
	return ""
}

// Deadline is when [Run.Limit] will have a reason at the earliest; zero: never.
func (r *Run) Deadline() time.Time {
	var at time.Time
	if r.StartedAt.IsZero() {
		return at
	}
	if d := r.Policy.TimeLimit; d > 0 {
		at = r.StartedAt.Add(d)
	}
	if d := r.Policy.NoProgress; d > 0 {
		if t := r.moved().Add(d); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}

// moved is when the run last got on.
func (r *Run) moved() time.Time {
	if r.ProgressAt.After(r.StartedAt) {
		return r.ProgressAt
	}
	return r.StartedAt
}
