package memsink

import (
	"context"
	"fmt"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
)

func call(op, subject string) gate.Call { return gate.Call{Op: op, Subject: subject} }

// Publish implements [engine.SinkSession].
func (s *Session) Publish(ctx context.Context, p *engine.Publication) (*engine.Receipt, error) {
	t := p.Target
	subject := fmt.Sprintf("%s@%d", p.Split, p.Claim)
	var x *txn
	var done *engine.Receipt
	err := s.do(ctx, "sink.publish.begin", subject, func() error {
		row, ok := s.db.ledger[rowOf(t, p.Split)]
		if ok && row.Done && !s.db.opt.Broken.NoPublishRow {
			// P8: a late redelivery answers as the first time.
			again := *row.receipt
			again.AlreadyDone = true
			done = &again
			return nil
		}
		x = s.db.begin(s, t, p.Split, p.Claim)
		return nil
	})
	if err != nil || done != nil {
		return done, err
	}
	defer s.rollback(x)
	err = s.locking(ctx, call("sink.publish.fence", subject), func() (bool, error) {
		// A publish is its row's first and only epoch.
		blocked, err := x.fenced(1)
		x.early = s.db.deltas[stagingName(t)]
		return blocked, err
	})
	if err != nil {
		return nil, err
	}
	rc := &engine.Receipt{}
	err = s.do(ctx, "sink.publish.commit", subject, func() error {
		if err := s.alive(x); err != nil {
			return err
		}
		return s.db.commitPublish(x, p, rc)
	})
	if err != nil {
		return nil, err
	}
	return rc, nil
}

func (db *DB) commitPublish(x *txn, p *engine.Publication, rc *engine.Receipt) error {
	t := x.target
	staging := db.tables[stagingName(t)]
	if err := db.complete(t, p, len(staging.rows)); err != nil {
		return err
	}
	if p.Stream != nil && db.ledger[rowOf(p.Stream.Target, p.Stream.Split)].Epoch < p.Stream.Epoch {
		return fmt.Errorf("publish %s: its changes are not all here: %w", t.Resource, engine.ErrLedgerBehind)
	}
	rows := staging.rows
	if t.Write == engine.WriteMerge && t.Staged {
		d := db.deltas[stagingName(t)]
		if db.opt.Broken.EarlyMerge {
			d = x.early
		}
		var err error
		if rows, err = db.merged(t, d); err != nil {
			return err
		}
	}
	db.observe(x, 1, true, rows)
	live := db.tables[t.Name]
	switch {
	case !t.Staged:
	case t.Write == engine.WriteMerge:
		live.rows, live.run = rows, t.RunID
		db.version++
	case t.Write == engine.WriteReplace:
		live.rows, live.run = staging.rows, t.RunID
		db.version++
	default:
		live.rows = append(live.rows[:len(live.rows):len(live.rows)], staging.rows...)
		db.version++
	}
	db.tables[t.Name] = live
	if t.Staged {
		rc.Applied = int64(len(staging.rows))
	}
	for name, st := range db.tables {
		// Earlier generations' too.
		if st.staging && st.fence == x.fence && st.run == t.RunID {
			delete(db.tables, name)
			delete(db.deltas, name)
		}
	}
	f := db.fences[x.fence]
	f.cursor = p.Cursor
	db.fences[x.fence] = f
	row := db.ledger[x.row]
	kept, totals := *rc, p.Totals
	kept.Published = &totals
	row.Epoch, row.Done, row.receipt = 1, true, &kept
	db.ledger[x.row] = row
	for k, r := range db.ledger {
		// What is published is proved by logged rows from now on.
		if k.fence == x.fence && k.run == t.RunID && r.unlogged {
			r.unlogged = false
			db.ledger[k] = r
		}
	}
	db.end(x)
	return nil
}

// complete tells whether every split of the frozen plan is applied, and staging
// holds what the ledger says (P7).
func (db *DB) complete(t *engine.Target, p *engine.Publication, staged int) error {
	if db.opt.Broken.NoStagingCheck || db.opt.Broken.NoPublishRow {
		return nil
	}
	var applied int64
	open := ""
	n := db.readRows(t, func(r ledgerRow) {
		applied += r.Totals.Applied
		if !r.Done {
			open = r.Split
		}
	})
	if n != len(p.Splits) || t.Staged && applied != int64(staged) {
		return fmt.Errorf("publish %s: %d of %d ledger rows, %d of %d staged rows: %w", t.Resource, n, len(p.Splits), staged, applied, engine.ErrStagingLost)
	}
	if open != "" {
		if t.Staged {
			return fmt.Errorf("publish %s: the ledger says that split %s is not done: %w", t.Resource, open, engine.ErrStagingLost)
		}
		return fmt.Errorf("publish %s: split %s is not done: %w", t.Resource, open, engine.ErrLedgerBehind)
	}
	return nil
}
