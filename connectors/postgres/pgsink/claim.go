package pgsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// Claim implements engine.Fencer.
func (s *Session) Claim(ctx context.Context, t *engine.Target, split string, claim int64) (*engine.LedgerEntry, error) {
	d, err := s.detailOf(t)
	if err != nil {
		return nil, err
	}
	var entry *engine.LedgerEntry
	err = s.with(ctx, "", func(c *conn) error {
		published, err := s.markClaimed(ctx, c, t, d, split)
		if err != nil {
			return err
		}
		table := s.table(t, d, split)
		if published {
			table = s.ledger.rows()
		}
		entry, err = s.claim(ctx, c, t, d, split, table, claim)
		return err
	})
	return entry, err
}

// markClaimed notes beside the fence, where a crash can't empty it, that rows
// may be loaded from now on, and checks that the plan is still the frozen one. It
// tells whether the run is published: then every ledger row is logged (P7).
func (s *Session) markClaimed(ctx context.Context, c *conn, t *engine.Target, d *detail, split string) (published bool, err error) {
	f, err := s.readFence(ctx, c, t)
	if err != nil {
		return false, err
	}
	if err := f.stale(t); err != nil {
		return false, err
	}
	if f.PublishedRun == t.RunID {
		return true, nil
	}
	if f.FrozenRun != t.RunID || f.FrozenGeneration != t.Generation {
		return false, s.rowGone(t, d, split)
	}
	if d.Staging != "" {
		var there bool
		if err := c.QueryRow(ctx, "SELECT "+exists(d.staging())).Scan(&there); err != nil {
			return false, classify(err, "look for staging of %s", t.Resource)
		}
		if !there {
			return false, stagingLost(t, "the table "+d.staging().String()+" does not exist")
		}
	}
	if f.Claimed {
		return false, nil
	}
	k := keyOf(t)
	tag, err := c.Exec(ctx, `UPDATE `+s.ledger.fence()+` SET claimed = true WHERE `+fenceWhere+`
		AND run_id = $4 AND ordinal = $5 AND frozen_run = $4 AND frozen_generation = $6 AND published_run <> $4`,
		k.installation, k.route, k.resource, t.RunID, t.Ordinal, t.Generation)
	if err != nil {
		return false, classify(err, "claim split %s", split)
	}
	if tag.RowsAffected() == 0 {
		return false, engine.Retryablef("claim split %s: the fence of %s has just changed", split, t.Resource)
	}
	return false, nil
}

// duty names what a session is recorded for.
func duty(t *engine.Target, split string, claim int64) string {
	return fmt.Sprintf("%s\x00%s\x00%d", t.RunID, split, claim)
}

// claim raises the split's claim, alone in a transaction, and reads the row
// (P1). The same session may repeat its claim.
func (s *Session) claim(ctx context.Context, c *conn, t *engine.Target, d *detail, split, table string, claim int64) (*engine.LedgerEntry, error) {
	k := keyOf(t)
	args := []any{k.installation, k.route, k.resource, t.RunID, split}
	older := func() ([]backend, error) {
		rows, err := c.Query(ctx, `SELECT backend_pid, backend_start FROM `+table+` WHERE `+rowWhere+` AND claim < $6 AND backend_pid IS NOT NULL`,
			append(args, claim)...)
		if err != nil {
			return nil, classify(err, "claim split %s", split)
		}
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[backend])
		return found, classify(err, "claim split %s", split)
	}
	entry := &engine.LedgerEntry{Split: split, Claim: claim}
	err := s.raise(ctx, c, "split "+split, older, func() error {
		err := scanEntry(entry, c.QueryRow(ctx, `UPDATE `+table+` SET claim = $6, owner = $7, backend_pid = $8, backend_start = $9, updated_at = now()
			WHERE `+rowWhere+` AND generation = $10 AND (claim < $6 OR claim = $6 AND owner = $7)
			RETURNING `+entryColumns, append(args, claim, s.owner, c.backend.PID, c.backend.Start, t.Generation)...))
		if !errors.Is(err, pgx.ErrNoRows) {
			return classify(err, "claim split %s", split)
		}
		have, err := s.readEntry(ctx, c, t, d, split)
		if err != nil {
			return err
		}
		return &engine.StaleError{What: "claim", Subject: "split " + split, Ours: claim, Have: have.Claim}
	})
	if err != nil {
		return nil, err
	}
	c.duty = duty(t, split, claim)
	return entry, nil
}

const entryColumns = "split, descriptor, claim, epoch, position, done, totals"

func scanEntry(e *engine.LedgerEntry, row pgx.Row) error {
	var position, descriptor *string
	var totals string
	if err := row.Scan(&e.Split, &descriptor, &e.Claim, &e.Epoch, &position, &e.Done, &totals); err != nil {
		return err
	}
	e.Descriptor = nil
	if descriptor != nil && *descriptor != "null" {
		e.Descriptor = json.RawMessage(*descriptor)
	}
	e.Position = nil
	if position != nil && *position != "null" {
		e.Position = engine.Position(*position)
	}
	e.Totals = engine.Totals{}
	if err := json.Unmarshal([]byte(totals), &e.Totals); err != nil {
		return engine.Bugf("read the ledger's totals of split %s: %w", e.Split, err)
	}
	return nil
}

// readEntry reads a split's ledger row, which is a logged one once the run is
// published. A row that is gone went with a crash, if it was unlogged, or the
// destination was restored to an earlier state.
func (s *Session) readEntry(ctx context.Context, c *conn, t *engine.Target, d *detail, split string) (*engine.LedgerEntry, error) {
	k := keyOf(t)
	e := new(engine.LedgerEntry)
	err := scanEntry(e, c.QueryRow(ctx, `SELECT `+entryColumns+` FROM `+s.ledger.rows()+` WHERE `+rowWhere+`
		UNION ALL SELECT `+entryColumns+` FROM `+s.ledger.staged()+` WHERE `+rowWhere+` LIMIT 1`,
		k.installation, k.route, k.resource, t.RunID, split))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, s.rowGone(t, d, split)
	}
	return e, classify(err, "read the ledger of split %s", split)
}

func (s *Session) rowGone(t *engine.Target, d *detail, split string) error {
	switch {
	case d.Staging == "":
		// P3: the destination was set back, and has less than State believes.
		return fmt.Errorf("split %s: its ledger row is gone: %w", split, engine.ErrLedgerBehind)
	case d.Unlogged && split != engine.PublishSplit(t.Resource):
		return stagingLost(t, "the server has restarted after a crash and emptied the unlogged table "+d.staging().String())
	}
	return stagingLost(t, "the ledger row of split "+split+" is gone")
}

// overtaken explains a failure by what was found missing: if the numbers say that
// the work is somebody else's by now, that counts, and nothing was lost (invariant 2).
func (s *Session) overtaken(ctx context.Context, t *engine.Target, d *detail, split string, claim int64, cause error) error {
	if !errors.Is(cause, engine.ErrStagingLost) && !errors.Is(cause, engine.ErrLedgerBehind) {
		return cause
	}
	err := s.with(ctx, "", func(c *conn) error {
		f, err := s.readFence(ctx, c, t)
		if err != nil {
			return err
		}
		if err := f.stale(t); err != nil {
			return err
		}
		e, err := s.readEntry(ctx, c, t, d, split)
		if err != nil {
			// It is gone indeed.
			return cause
		}
		if e.Claim != claim || f.PublishedRun == t.RunID {
			return &engine.StaleError{What: "claim", Subject: "split " + split, Ours: claim, Have: e.Claim}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return cause
}

// record makes sure that the ledger names this session for the claim, before it
// takes any lock that a later claim would have to break (P5).
func (s *Session) record(ctx context.Context, c *conn, t *engine.Target, d *detail, split string, claim int64) error {
	want := duty(t, split, claim)
	if c.duty == want {
		return nil
	}
	k := keyOf(t)
	tag, err := c.Exec(ctx, `UPDATE `+s.table(t, d, split)+` SET backend_pid = $7, backend_start = $8 WHERE `+rowWhere+` AND claim = $6`,
		k.installation, k.route, k.resource, t.RunID, split, claim, c.backend.PID, c.backend.Start)
	if err != nil {
		return classify(err, "record the session of split %s", split)
	}
	if tag.RowsAffected() == 0 {
		have, err := s.readEntry(ctx, c, t, d, split)
		if err != nil {
			return err
		}
		return &engine.StaleError{What: "claim", Subject: "split " + split, Ours: claim, Have: have.Claim}
	}
	c.duty = want
	return nil
}
