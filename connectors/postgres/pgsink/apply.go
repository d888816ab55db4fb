package pgsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// Apply implements engine.SinkSession.
func (s *Session) Apply(ctx context.Context, e *engine.Epoch) (*engine.Receipt, error) {
	if e.Stream != nil {
		return s.applyStream(ctx, e)
	}
	if len(e.Targets) != 1 {
		return nil, engine.Bugf("apply epoch %d of split %s: the postgres sink writes epochs of one resource, not %d", e.Number, e.Split, len(e.Targets))
	}
	var t *engine.Target
	for _, t = range e.Targets {
	}
	d, err := s.detailOf(t)
	if err != nil {
		return nil, err
	}
	var receipt *engine.Receipt
	err = s.with(ctx, duty(t, e.Split, e.Claim), func(c *conn) error {
		if err := s.record(ctx, c, t, d, e.Split, e.Claim); err != nil {
			return err
		}
		w, err := s.newWriter(ctx, c, t, d, e)
		if err != nil {
			return err
		}
		return inTx(ctx, c, 0, func() error {
			if err := w.write(ctx); err != nil {
				return err
			}
			receipt = w.receipt
			return s.step(ctx, c, t, d, e, receipt)
		})
	})
	if err != nil {
		err = s.overtaken(ctx, t, d, e.Split, e.Claim, err)
		return nil, fmt.Errorf("apply epoch %d of split %s: %w", e.Number, e.Split, err)
	}
	return receipt, nil
}

// step is the end of an epoch's transaction (P2): after the data, the fence by
// our ordinal, then the ledger by our claim and the epoch before. Anything else
// found there rolls the rows back (invariant 2).
func (s *Session) step(ctx context.Context, c *conn, t *engine.Target, d *detail, e *engine.Epoch, r *engine.Receipt) error {
	entry, err := s.holdFence(ctx, c, t, d, e.Split, e.Claim)
	if err != nil {
		return err
	}
	if entry.Epoch != e.Number-1 || entry.Done {
		return epochTaken(e, entry)
	}
	end := e.End()
	totals := entry.Totals
	totals.Add(engine.Totals{
		Read: end.Rows + end.Skipped, Applied: r.Applied, Superseded: r.Superseded, Skipped: r.Skipped + end.Skipped,
		SetAside: r.SetAside, Bytes: end.Bytes, Digest: end.Digest, ReadBack: r.ReadBack, Policies: r.Policies,
	})
	totals.AddPolicies(end.Policies)
	raw, err := json.Marshal(totals)
	if err != nil {
		return engine.Bugf("write totals of split %s: %w", e.Split, err)
	}
	k := keyOf(t)
	tag, err := c.Exec(ctx, `UPDATE `+s.table(t, d, e.Split)+` SET epoch = $7, position = $8::json, done = $9, totals = $10::json, updated_at = now()
		WHERE `+rowWhere+` AND claim = $6 AND epoch = $7 - 1 AND NOT done AND generation = $11`,
		k.installation, k.route, k.resource, t.RunID, e.Split, e.Claim, e.Number, jsonText(end.Position), end.Done, string(raw), t.Generation)
	if err != nil {
		return classify(err, "write the ledger of split %s", e.Split)
	}
	if tag.RowsAffected() != 1 {
		return epochTaken(e, entry)
	}
	return nil
}

// epochTaken tells that the epoch is applied already, or not next: the split's
// owner has to ask the ledger where it is (P4).
func epochTaken(e *engine.Epoch, have *engine.LedgerEntry) error {
	return &engine.StaleError{What: "claim", Subject: fmt.Sprintf("epoch %d of split %s, whose ledger is at epoch %d,", e.Number, e.Split, have.Epoch),
		Ours: e.Claim, Have: have.Claim}
}

// holdFence locks the fence row for as long as the transaction lives, if it is
// still ours, and then the ledger row. The shared advisory lock comes first:
// without it, new holders of the row's share lock would overtake a waiting run
// start for ever (P2).
func (s *Session) holdFence(ctx context.Context, c *conn, t *engine.Target, d *detail, split string, claim int64) (*engine.LedgerEntry, error) {
	k := keyOf(t)
	b := &pgx.Batch{}
	b.Queue("SELECT pg_advisory_xact_lock_shared($1)", k.lock())
	b.Queue(`SELECT ordinal, run_id FROM `+s.ledger.fence()+` WHERE `+fenceWhere+` FOR SHARE`, k.installation, k.route, k.resource)
	b.Queue(`SELECT `+entryColumns+`, generation FROM `+s.table(t, d, split)+` WHERE `+rowWhere+` FOR UPDATE`,
		k.installation, k.route, k.resource, t.RunID, split)
	results := c.SendBatch(ctx, b)
	defer func() { _ = results.Close() }()
	if _, err := results.Exec(); err != nil {
		return nil, classify(err, "hold the fence of %s", t.Resource)
	}
	var ordinal int64
	var run string
	err := results.QueryRow().Scan(&ordinal, &run)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, classify(err, "hold the fence of %s", t.Resource)
	}
	if ordinal != t.Ordinal || run != t.RunID {
		return nil, &engine.StaleError{What: "ordinal", Subject: t.Resource, Ours: t.Ordinal, Have: ordinal}
	}
	var generation int
	entry := new(engine.LedgerEntry)
	err = scanEntry(entry, withMore{results.QueryRow(), []any{&generation}})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, s.rowGone(t, d, split)
	}
	if err != nil {
		return nil, classify(err, "hold the ledger of split %s", split)
	}
	if generation != t.Generation {
		return nil, &engine.StaleError{What: "generation", Subject: t.Resource, Ours: int64(t.Generation), Have: int64(generation)}
	}
	if entry.Claim != claim {
		return nil, &engine.StaleError{What: "claim", Subject: "split " + split, Ours: claim, Have: entry.Claim}
	}
	return entry, nil
}

// withMore scans further columns behind those that its caller knows.
type withMore struct {
	row  pgx.Row
	more []any
}

func (w withMore) Scan(dest ...any) error { return w.row.Scan(append(dest, w.more...)...) }
