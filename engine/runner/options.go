package runner

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/tranship-io/tranship/engine"
)

// Options is everything that a run needs.
type Options struct {
	State engine.State
	// OpenSource and OpenSink open the two ends; Run closes them.
	OpenSource func(ctx context.Context, opt engine.OpenOptions) (engine.SourceSession, error)
	OpenSink   func(ctx context.Context, opt engine.OpenOptions) (engine.SinkSession, error)
	// Pipeline is the pipeline's name, Version the content hash of its document.
	Pipeline string
	Version  string
	// Resources are the resources to replicate, patterns expanded.
	Resources []ResourceRequest
	Settings  Settings
	// Restart begins a new run even if an unfinished one could be resumed.
	Restart bool
	// Continuous lets the run go on once its change stream has caught up, until it is
	// asked to stop; it has no effect on a pipeline without one.
	Continuous bool
	// OneAttempt makes Run return at the attempt's boundary with the run still
	// open, for a worker whose life is bounded from outside; otherwise attempt
	// follows attempt in this process.
	OneAttempt bool
	// Stop, when closed, ends the work at safe positions. The run is then paused,
	// or with OneAttempt handed over.
	Stop <-chan struct{}
	// Nudge makes the attempt ask at once what the run's owner wants, instead of
	// at its next heartbeat (P22); nil means that nobody nudges.
	Nudge <-chan struct{}
	// Planned, if not nil, is called with the frozen plan before rows move, once an
	// attempt.
	Planned func(*engine.RunPlan)
	// Progress, if not nil, receives live counters.
	Progress *Progress
	// Holder names this process in leases; empty means "local".
	Holder string
	// Log receives operational messages; nil means none.
	Log *slog.Logger
}

// ResourceRequest is one resource as the pipeline wants it.
type ResourceRequest struct {
	engine.Selection
	Read  engine.ReadMode
	Write engine.WriteMode
	// Range, if not nil, reads a part of an incremental resource again and leaves the
	// route's cursor where it is.
	Range *engine.CursorRange
	// Target overrides the target's name; empty derives it.
	Target   string
	Policies engine.Policies
	// Consistency of a full read; empty means the source's default.
	Consistency engine.Consistency
	// Options are the sink's options for this resource.
	Options json.RawMessage
}

// Settings of a run. The zero value is usable.
type Settings struct {
	// Slots is the number of splits in progress at once; 0 means 2.
	Slots int
	// Memory is the budget of one attempt in bytes; 0 means 256 MiB.
	Memory int64
	// AttemptTime bounds an attempt; 0 means no bound.
	AttemptTime time.Duration
	// AttemptBytes and AttemptRows end an attempt at the first safe position
	// after that much was read; 0 means no bound.
	AttemptBytes int64
	AttemptRows  int64
	// Verify defaults to counts.
	Verify engine.Verify
	// Schema defaults to evolve.
	Schema  engine.SchemaPolicy
	Lineage bool
	// OnLost defaults to fail.
	OnLost engine.OnLost
	// EpochBytes is the size at which an epoch ends at the next mark; 0 means
	// the sink's wish, or 64 MiB.
	EpochBytes int64
	// EpochTime ends an epoch at the next mark after that time; 0 means 15 s.
	EpochTime time.Duration
	// BatchBytes is the size of batches; 0 means the sink's wish, or 256 KiB
	// for wire and 2 MiB for columns, at most an eighth of a slot's share.
	BatchBytes int64
	// SplitBytes is the wished size of a split; 0 means the source's default.
	SplitBytes int64
	// GiveUp is how long something that fails retryably is tried without any
	// progress; 0 means 60 s. At least MinTries tries are made; 0 means 4.
	GiveUp   time.Duration
	MinTries int
	// Jitter is by which part waits between tries vary at random; 0 means a
	// half, negative means not at all (for tests that must repeat).
	Jitter float64
	// LeaseTime of a slot; 0 means 60 s. Heartbeats come every min(4 s, lease/4).
	LeaseTime time.Duration
	// WorkDir is for temporary files; empty means the system's folder.
	WorkDir string
}

// Memory arithmetic: of the attempt's budget, fixedMemory is kept for the
// runtime, the binary and connections; half of the rest holds batches in
// flight, shared equally by the slots; the other half is for what sinks build
// from them (row groups, encoders) and for the collector's slack.
const (
	fixedMemory   = 24 << 20
	minSlotBudget = 1 << 20
)

func (s Settings) withDefaults() Settings {
	if s.Slots <= 0 {
		s.Slots = 2
	}
	if s.Memory <= 0 {
		s.Memory = 256 << 20
	}
	if s.Verify == "" {
		s.Verify = engine.VerifyCounts
	}
	if s.Schema == "" {
		s.Schema = engine.SchemaEvolve
	}
	if s.OnLost == "" {
		s.OnLost = engine.OnLostFail
	}
	if s.EpochTime <= 0 {
		s.EpochTime = 15 * time.Second
	}
	if s.GiveUp <= 0 {
		s.GiveUp = time.Minute
	}
	if s.MinTries <= 0 {
		s.MinTries = 4
	}
	if s.Jitter == 0 {
		s.Jitter = 0.5
	}
	if s.LeaseTime <= 0 {
		s.LeaseTime = time.Minute
	}
	return s
}

// slotBudget is the batch budget of one slot in bytes.
func (s Settings) slotBudget() int64 {
	n := (s.Memory - fixedMemory) / 2 / int64(s.Slots)
	return max(n, minSlotBudget)
}

// inFlight is how many batches of one split may be on their way: enough that
// neither end waits for the other's hiccups; more would only hold memory.
const inFlight = 12

// splitBudget is the batch budget of one split in bytes.
func (s Settings) splitBudget(t *engine.Target) int64 {
	return min(s.slotBudget(), inFlight*s.batchBytes(t))
}

// batchBytes is the size of batches for a target.
func (s Settings) batchBytes(t *engine.Target) int64 {
	n := s.BatchBytes
	if n == 0 {
		n = t.BatchBytes
	}
	if n == 0 {
		if t.Wire != "" {
			n = 256 << 10
		} else {
			n = 2 << 20
		}
	}
	return max(min(n, s.slotBudget()/8), 16<<10)
}

// epochBytes is the size of epochs for a target.
func (s Settings) epochBytes(t *engine.Target) int64 {
	switch {
	case s.EpochBytes > 0:
		return s.EpochBytes
	case t.EpochBytes > 0:
		return t.EpochBytes
	}
	return 64 << 20
}

func (s Settings) heartbeat() time.Duration {
	return min(4*time.Second, s.LeaseTime/4)
}
