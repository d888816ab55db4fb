package memsink

import (
	"context"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
)

// txn is a transaction of an epoch or a publish: it holds the fence for share
// and its ledger row from the fence step to its end (P2).
type txn struct {
	session *Session
	target  *engine.Target
	fence   fenceKey
	row     ledgerKey
	claim   int64
	// locked is true from the fence step on.
	locked bool
	// early are the changes that were kept when the publish began.
	early delta
	// ended is true once it is committed, rolled back or terminated.
	ended bool
}

func (db *DB) begin(s *Session, t *engine.Target, split string, claim int64) *txn {
	x := &txn{session: s, target: t, fence: keyOf(t), row: rowOf(t, split), claim: claim}
	db.txns[x] = struct{}{}
	return x
}

// end ends a transaction and wakes who waits for its locks.
func (db *DB) end(x *txn) {
	if x.ended {
		return
	}
	x.ended = true
	delete(db.txns, x)
	db.wake()
}

func (db *DB) endAll() {
	for x := range db.txns {
		x.ended = true
	}
	clear(db.txns)
	db.wake()
}

func (db *DB) wake() {
	close(db.changed)
	db.changed = make(chan struct{})
}

// terminate ends the transactions that match, unless that is forbidden, and
// tells whether one that holds locks is left (P5).
func (db *DB) terminate(match func(*txn) bool) (blocked bool) {
	for x := range db.txns {
		switch {
		case !match(x):
		case !db.opt.NoTerminate:
			db.end(x)
		case x.locked:
			blocked = true
		}
	}
	return blocked
}

// alive tells that the session was not closed and its transaction not terminated.
func (s *Session) alive(x *txn) error {
	if s.closed {
		return engine.Retryablef("the connection to %s is closed", s.db.opt.Identity)
	}
	if x != nil && x.ended {
		return engine.Retryablef("split %s: the transaction was terminated by the server", x.row.split)
	}
	return nil
}

// locking passes a gate with an effect that may have to wait for a lock; it
// tries again whenever a transaction ends, up to the lock timeout.
func (s *Session) locking(ctx context.Context, c gate.Call, try func() (blocked bool, err error)) error {
	timeout := time.NewTimer(s.db.opt.LockTimeout)
	defer timeout.Stop()
	for {
		var blocked bool
		var changed chan struct{}
		err := s.gate(ctx, c, func() error {
			s.db.mu.Lock()
			defer s.db.mu.Unlock()
			changed = s.db.changed
			var err error
			blocked, err = try()
			return err
		})
		if err != nil || !blocked {
			return err
		}
		select {
		case <-changed:
		case <-timeout.C:
			return engine.Retryablef("%s %s: lock timeout", c.Op, c.Subject)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fenced is the fence step of a transaction: it takes the locks and compares the
// numbers (P2). The caller holds db.mu.
func (x *txn) fenced(epoch int64) (blocked bool, err error) {
	db := x.session.db
	if err := x.session.alive(x); err != nil {
		return false, err
	}
	if db.waiting[x.fence] > 0 {
		// A waiting run start is not overtaken.
		return true, nil
	}
	for o := range db.txns {
		if o != x && o.locked && o.row == x.row {
			return true, nil
		}
	}
	f := db.fences[x.fence]
	if f.ordinal != x.target.Ordinal || f.run != x.target.RunID {
		if !db.opt.Broken.NoOrdinalCheck {
			return false, &engine.StaleError{What: "ordinal", Subject: x.target.Resource, Ours: x.target.Ordinal, Have: f.ordinal}
		}
	}
	row, ok := db.ledger[x.row]
	unchecked := db.opt.Broken.NoClaimCheck || db.opt.Broken.NoPublishRow && x.row.split == engine.PublishSplit(x.target.Resource)
	if !unchecked && (!ok || row.Claim != x.claim || row.Epoch != epoch-1) {
		return false, &engine.StaleError{What: "claim", Subject: x.row.split, Ours: x.claim, Have: row.Claim}
	}
	x.locked = true
	return false, nil
}

func keyOf(t *engine.Target) fenceKey { return fenceKey{route: t.Route, resource: t.Resource} }

func rowOf(t *engine.Target, split string) ledgerKey {
	return ledgerKey{fence: keyOf(t), run: t.RunID, split: split}
}

// stagingName names by run and generation: the ordinal may still be raised.
func stagingName(t *engine.Target) string {
	return fmt.Sprintf("staging of %s %s.%d", t.Name, t.RunID, t.Generation)
}
