package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
	"github.com/tranship-io/tranship/events"
)

// gatedState is a process's State: every write passes the process's gate.
// Reads have no effect that an interruption could tear, and pass at once.
type gatedState struct {
	engine.State
	p *proc
}

var _ engine.State = (*gatedState)(nil)

func (s *gatedState) do(ctx context.Context, op, subject string, effect func() error) error {
	return s.p.gate(ctx, gate.Call{Op: "state." + op, Subject: subject}, effect)
}

func slotOf(f engine.Fence) string { return fmt.Sprintf("slot%d", f.Slot) }

func (s *gatedState) AdoptRoute(ctx context.Context, r engine.Route, version string, a engine.Adoption) error {
	return s.do(ctx, "adopt", "", func() error { return s.State.AdoptRoute(ctx, r, version, a) })
}

func (s *gatedState) StartRun(ctx context.Context, req engine.StartRequest) (run engine.Run, resumed bool, err error) {
	err = s.do(ctx, "start", "", func() error {
		var err error
		run, resumed, err = s.State.StartRun(ctx, req)
		return err
	})
	return run, resumed, err
}

func (s *gatedState) RaiseOrdinal(ctx context.Context, id uuid.UUID, atLeast int64) (run engine.Run, err error) {
	err = s.do(ctx, "raiseordinal", "", func() error {
		var err error
		run, err = s.State.RaiseOrdinal(ctx, id, atLeast)
		return err
	})
	return run, err
}

func (s *gatedState) FinishRun(ctx context.Context, f engine.Fence, end engine.RunEnd) error {
	return s.do(ctx, "finish", string(end.State), func() error { return s.State.FinishRun(ctx, f, end) })
}

func (s *gatedState) AppendFacts(ctx context.Context, f engine.Fence, facts []events.Fact) error {
	return s.do(ctx, "facts", slotOf(f), func() error { return s.State.AppendFacts(ctx, f, facts) })
}

func (s *gatedState) SavePlan(ctx context.Context, f engine.Fence, plan *engine.RunPlan, facts []events.Fact) error {
	return s.do(ctx, "saveplan", slotOf(f), func() error {
		if err := s.State.SavePlan(ctx, f, plan, facts); err != nil {
			return err
		}
		for _, rp := range plan.Resources {
			s.p.w.planned(f.RunID.String(), rp)
		}
		return nil
	})
}

func (s *gatedState) ReplaceResource(ctx context.Context, f engine.Fence, rp *engine.ResourcePlan, facts []events.Fact) error {
	return s.do(ctx, "replaceresource", rp.Selection.Resource, func() error {
		if err := s.State.ReplaceResource(ctx, f, rp, facts); err != nil {
			return err
		}
		s.p.w.planned(f.RunID.String(), rp)
		return nil
	})
}

func (s *gatedState) ClaimSplit(ctx context.Context, f engine.Fence, exclude []string) (c *engine.ClaimedSplit, err error) {
	s.p.frozenPlan.Store(true)
	err = s.do(ctx, "claim", slotOf(f), func() error {
		var err error
		c, err = s.State.ClaimSplit(ctx, f, exclude)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (s *gatedState) RaiseClaim(ctx context.Context, f engine.Fence, split string, atLeast int64) (n int64, err error) {
	err = s.do(ctx, "raiseclaim", split, func() error {
		var err error
		n, err = s.State.RaiseClaim(ctx, f, split, atLeast)
		return err
	})
	return n, err
}

func (s *gatedState) Commit(ctx context.Context, f engine.Fence, p engine.Progress) error {
	return s.do(ctx, "commit", fmt.Sprintf("%s@%d#%d", p.Split, p.Claim, p.Epoch), func() error {
		rightful := s.p.w.rightful(s.State, f, p)
		if err := s.State.Commit(ctx, f, p); err != nil {
			return err
		}
		if !rightful {
			s.p.w.violate("invariant 2: State took a stale checkpoint of split %s claim %d epoch %d", p.Split, p.Claim, p.Epoch)
		}
		if !s.p.old {
			s.p.w.checkpointed(f, p)
		}
		return nil
	})
}

func (s *gatedState) ReturnSplit(ctx context.Context, f engine.Fence, split string, claim int64) error {
	return s.do(ctx, "return", split, func() error { return s.State.ReturnSplit(ctx, f, split, claim) })
}

func (s *gatedState) CommitPublish(ctx context.Context, f engine.Fence, p engine.Progress, cursor json.RawMessage, seen []engine.RowID) error {
	return s.do(ctx, "commitpublish", p.Split, func() error { return s.State.CommitPublish(ctx, f, p, cursor, seen) })
}

func (s *gatedState) Acquire(ctx context.Context, id uuid.UUID, slot int, holder string, ttl time.Duration) (l engine.Lease, err error) {
	err = s.do(ctx, "acquire", fmt.Sprintf("slot%d", slot), func() error {
		var err error
		l, err = s.State.Acquire(ctx, id, slot, holder, ttl)
		return err
	})
	return l, err
}

func (s *gatedState) Renew(ctx context.Context, l engine.Lease, ttl time.Duration) (d engine.Desired, err error) {
	err = s.do(ctx, "renew", slotOf(l.Fence), func() error {
		var err error
		d, err = s.State.Renew(ctx, l, ttl)
		return err
	})
	return d, err
}

func (s *gatedState) EndAttempt(ctx context.Context, l engine.Lease, facts []events.Fact) error {
	return s.do(ctx, "endattempt", slotOf(l.Fence), func() error { return s.State.EndAttempt(ctx, l, facts) })
}
