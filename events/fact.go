// Package events defines the facts of a run: things that happened, immutable,
// versioned, and numbered per run without gaps. The JSON form is stored and
// sent; a field's meaning never changes within a version of its type.
package events

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Type names a kind of fact.
type Type string

// Fact is one thing that happened in a run.
type Fact struct {
	// ID is a UUIDv7, unique over all facts.
	ID uuid.UUID `json:"id"`
	// RunID is the run that the fact belongs to.
	RunID uuid.UUID `json:"run_id"`
	// Number counts the run's facts from 1, without gaps; the State that stores
	// the fact assigns it.
	Number int64 `json:"number"`
	Type   Type  `json:"type"`
	// Version is the version of the type's payload.
	Version int `json:"version"`
	// At is when it happened, by the clock of the process that saw it, in UTC.
	At time.Time `json:"at"`
	// Payload is the payload struct of the type, as JSON.
	Payload json.RawMessage `json:"payload"`
}

// Payload is the body of a fact. Every payload type of this package implements it.
type Payload interface {
	// FactType returns the fact's type and the payload's version.
	FactType() (Type, int)
}

// New makes a fact of a payload; its number is 0 until a State stores it.
func New(runID uuid.UUID, at time.Time, p Payload) (Fact, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Fact{}, fmt.Errorf("make fact id: %w", err)
	}
	body, err := json.Marshal(p)
	if err != nil {
		return Fact{}, fmt.Errorf("encode fact: %w", err)
	}
	t, v := p.FactType()
	return Fact{ID: id, RunID: runID, Type: t, Version: v, At: at.UTC(), Payload: body}, nil
}

// Decode returns the fact's payload as a pointer to its payload type. A type or
// version that this build does not know is an error of type *UnknownError.
func (f Fact) Decode() (Payload, error) {
	blank, ok := registry[f.Type]
	if !ok {
		return nil, &UnknownError{Type: f.Type, Version: f.Version}
	}
	p := blank()
	if _, v := p.FactType(); v != f.Version {
		return nil, &UnknownError{Type: f.Type, Version: f.Version}
	}
	if err := json.Unmarshal(f.Payload, p); err != nil {
		return nil, fmt.Errorf("decode fact %s: %w", f.Type, err)
	}
	return p, nil
}

// UnknownError tells that a fact was written by a newer version of Tranship.
type UnknownError struct {
	Type    Type
	Version int
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("fact %q version %d is not known to this version of tranship", e.Type, e.Version)
}
