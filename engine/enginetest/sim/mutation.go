package sim

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/enginetest/memsource"
)

// Mutation removes protections, to prove that the simulation notices.
type Mutation struct {
	// Sink removes one of the destination's, Source one of the source's.
	Sink   memsink.Broken
	Source memsource.Broken
	// Streams draws only scenarios with a change stream, where what is removed matters.
	Streams bool
	// NoReconcile answers claims with what State believes instead of the ledger.
	NoReconcile bool
	// StaleCommit lets State take checkpoints without comparing claims.
	StaleCommit bool
}

func (m Mutation) sink(s engine.SinkSession, state *gatedState) engine.SinkSession {
	if ses, ok := s.(*memsink.Session); ok && m.NoReconcile {
		return &believer{Session: ses, state: state}
	}
	return s
}

func (m Mutation) state(s engine.State) engine.State {
	if m.StaleCommit {
		return &lenient{State: s}
	}
	return s
}

// believer is a sink whose claims answer with State's checkpoint.
type believer struct {
	*memsink.Session
	state *gatedState
}

func (b *believer) Claim(ctx context.Context, t *engine.Target, split string, claim int64) (*engine.LedgerEntry, error) {
	e, err := b.Session.Claim(ctx, t, split, claim)
	if err != nil {
		return nil, err
	}
	id, err := uuid.Parse(t.RunID)
	if err != nil {
		return nil, engine.Bugf("run id %q: %w", t.RunID, err)
	}
	splits, err := b.state.Splits(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, s := range splits {
		if s.ID == split {
			return &engine.LedgerEntry{Split: split, Descriptor: e.Descriptor, Claim: claim, Epoch: s.Epoch, Position: s.Position, Done: s.Done, Totals: s.Totals}, nil
		}
	}
	return e, nil
}

// lenient is a State that answers every checkpoint as if it were its owner's.
type lenient struct{ engine.State }

func (l *lenient) Commit(ctx context.Context, f engine.Fence, p engine.Progress) error {
	err := l.State.Commit(ctx, f, p)
	var stale *engine.StaleError
	if errors.As(err, &stale) {
		return nil
	}
	return err
}
