package pgsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// publisher makes one resource visible.
type publisher struct {
	s   *Session
	c   *conn
	t   *engine.Target
	d   *detail
	p   *engine.Publication
	ran []string
	// totals are the ledger's sums over the read splits.
	totals engine.Totals
	// counted is true when staging was found to hold what totals say (P7).
	counted bool
	// expect is how many rows become visible.
	expect int64
}

// Publish implements engine.SinkSession.
func (s *Session) Publish(ctx context.Context, p *engine.Publication) (*engine.Receipt, error) {
	d, err := s.detailOf(p.Target)
	if err != nil {
		return nil, err
	}
	var receipt *engine.Receipt
	err = s.with(ctx, duty(p.Target, p.Split, p.Claim), func(c *conn) error {
		var err error
		receipt, err = (&publisher{s: s, c: c, t: p.Target, d: d, p: p}).publish(ctx)
		return err
	})
	if err != nil {
		err = s.overtaken(ctx, p.Target, d, p.Split, p.Claim, err)
		return nil, fmt.Errorf("publish %s: %w", p.Target.Resource, err)
	}
	return receipt, nil
}

func (p *publisher) publish(ctx context.Context) (*engine.Receipt, error) {
	// P8: a publish that happened is not done again, whoever asks.
	if done, err := p.earlier(ctx); done != nil || err != nil {
		if done != nil {
			p.tidy(ctx)
		}
		return done, err
	}
	if _, err := p.s.claim(ctx, p.c, p.t, p.d, p.p.Split, p.s.ledger.rows(), p.p.Claim); err != nil {
		return nil, err
	}
	if err := p.checkSplits(ctx); err != nil {
		return nil, err
	}
	p.expect = p.totals.Applied
	finish, err := p.technique(ctx)
	if err != nil {
		return nil, err
	}
	finish = p.aligned(finish)
	// Superseded, skipped and set aside were counted by the splits.
	receipt := &engine.Receipt{Applied: p.totals.Applied, Bytes: p.totals.Bytes, Verified: p.t.Verify == engine.VerifyDigest}
	prepared := len(p.ran)
	err = retryLocked(ctx, p.t.Name, func() error {
		p.ran = p.ran[:prepared]
		return inTx(ctx, p.c, ddlLock, func() error {
			if err := finish(ctx); err != nil {
				return err
			}
			receipt.Statements = p.ran
			return p.step(ctx, receipt)
		})
	})
	if err != nil {
		return nil, err
	}
	p.tidy(ctx)
	// Statistics of what was written; a failure leaves them to autovacuum.
	if p.t.Resource != engine.StreamResource {
		_, _ = p.c.Exec(ctx, "ANALYZE "+p.d.place().sql())
	}
	return receipt, nil
}

// tidy drops what is left of the run's staging, of every generation. What can't
// be dropped now is left to the next run's start: the publish has happened.
func (p *publisher) tidy(ctx context.Context) {
	left, err := p.s.findStaging(ctx, p.c, func(at place) bool { return ofRun(p.t, at.Table) })
	if err != nil {
		return
	}
	for _, at := range left {
		_ = p.s.dropOne(ctx, p.c, p.t, at, func(f *fenceRow) bool { return f.PublishedRun == p.t.RunID })
	}
}

// earlier returns the receipt of this run's publish, if it happened.
func (p *publisher) earlier(ctx context.Context) (*engine.Receipt, error) {
	k := keyOf(p.t)
	var done bool
	var raw *string
	err := p.c.QueryRow(ctx, `SELECT done, receipt::text FROM `+p.s.ledger.rows()+` WHERE `+rowWhere,
		k.installation, k.route, k.resource, p.t.RunID, p.p.Split).Scan(&done, &raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, p.s.rowGone(p.t, p.d, p.p.Split)
	}
	if err != nil {
		return nil, classify(err, "read the publish's ledger row")
	}
	if !done || raw == nil {
		return nil, nil
	}
	receipt := new(engine.Receipt)
	if err := json.Unmarshal([]byte(*raw), receipt); err != nil { //nolint:musttag // as written by step
		return nil, engine.Bugf("read the publish's receipt: %w", err)
	}
	receipt.AlreadyDone = true
	return receipt, nil
}

// checkSplits requires the ledger to have exactly the splits of the plan, and
// each of them as done (P7).
func (p *publisher) checkSplits(ctx context.Context) error {
	k := keyOf(p.t)
	rows, err := p.c.Query(ctx, `SELECT `+entryColumns+` FROM `+p.s.table(p.t, p.d, "")+` WHERE `+runWhere+` AND split <> $5 AND generation = $6`,
		k.installation, k.route, k.resource, p.t.RunID, engine.PublishSplit(p.t.Resource), p.t.Generation)
	if err != nil {
		return classify(err, "read the ledger")
	}
	defer rows.Close()
	missing := map[string]bool{}
	for _, id := range p.p.Splits {
		missing[id] = true
	}
	for rows.Next() {
		e := new(engine.LedgerEntry)
		if err := scanEntry(e, rows); err != nil {
			return classify(err, "read the ledger")
		}
		if !missing[e.Split] {
			return p.behind("the ledger has split " + e.Split + ", the plan does not")
		}
		if !e.Done {
			return p.behind("split " + e.Split + " is not done")
		}
		delete(missing, e.Split)
		p.totals.Add(e.Totals)
	}
	if err := rows.Err(); err != nil {
		return classify(err, "read the ledger")
	}
	for id := range missing {
		return p.s.rowGone(p.t, p.d, id)
	}
	if have, want := p.totals.Applied, p.p.Totals.Applied; have != want {
		return &engine.MismatchError{Resource: p.t.Resource, What: "rows", Source: fmt.Sprintf("%d applied", want),
			Destination: fmt.Sprintf("%d applied by the ledger", have)}
	}
	return nil
}

// behind tells that the destination has less than State believes (P3).
func (p *publisher) behind(why string) error {
	if p.d.Staging != "" {
		return stagingLost(p.t, why)
	}
	return fmt.Errorf("%s: %w", why, engine.ErrLedgerBehind)
}

// technique does what can be done before the publish's transaction, and returns
// what belongs into it.
func (p *publisher) technique(ctx context.Context) (func(ctx context.Context) error, error) {
	if p.t.Resource == engine.StreamResource {
		return func(context.Context) error { return nil }, nil
	}
	if p.d.Staging == "" {
		return p.advance, nil
	}
	if p.t.Write == engine.WriteAppend {
		return p.addStaged, p.countStaging(ctx)
	}
	if err := p.requireStaging(ctx); err != nil {
		return nil, err
	}
	target, err := p.s.readTable(ctx, p.c, p.d.place())
	if err != nil {
		return nil, err
	}
	if target == nil {
		return p.create(ctx)
	}
	// What depends on the target may have changed since the plan.
	dep, err := p.s.inspect(ctx, p.c, target)
	if err != nil {
		return nil, err
	}
	how, _, err := dep.choose(target, p.d.Key)
	if err != nil {
		return nil, err
	}
	if how == techniqueSwap && p.d.Exists {
		return p.swap(ctx, target)
	}
	if err := p.countStaging(ctx); err != nil {
		return nil, err
	}
	if how == techniqueMerge {
		return p.merge(ctx, dep)
	}
	if len(dep.Incoming) > 0 {
		return nil, engine.Permanentf("name the key of the rows in the pipeline, with a unique index on it at the target",
			"replace %s: foreign key %s of %s points to it, so its rows can't all be deleted", p.t.Name, dep.Incoming[0].Name, dep.Incoming[0].Child)
	}
	return p.rewrite, nil
}

// requireStaging tells early that staging is gone.
func (p *publisher) requireStaging(ctx context.Context) error {
	var there bool
	if err := p.c.QueryRow(ctx, "SELECT "+exists(p.d.staging())).Scan(&there); err != nil {
		return classify(err, "look for staging of %s", p.t.Resource)
	}
	if !there {
		return stagingLost(p.t, "the table "+p.d.staging().String()+" does not exist")
	}
	return nil
}

// countStaging compares staging with the sum of its splits: the sum alone can
// agree by chance after a crash (P7).
func (p *publisher) countStaging(ctx context.Context) error {
	if p.counted {
		return nil
	}
	var n int64
	err := p.c.QueryRow(ctx, "SELECT count(*) FROM "+p.d.staging().sql()).Scan(&n)
	if code(err) == codeNoTable {
		return stagingLost(p.t, "the table "+p.d.staging().String()+" does not exist")
	}
	if err != nil {
		return classify(err, "count staging")
	}
	if n != p.totals.Applied {
		return stagingLost(p.t, fmt.Sprintf("%s holds %d rows and the ledger says %d", p.d.staging(), n, p.totals.Applied))
	}
	p.counted = true
	return nil
}

// maxExact is the number up to which the catalog, which counts rows in float4,
// holds every count exactly.
const maxExact = 1 << 24

// build makes an index or constraint on staging. To build an index the server
// goes through all rows, under a lock that lets nobody write, and notes their
// number for table and index: if that is the ledger's sum, they need not be
// counted again (P7). Whatever else is found there proves nothing; then
// countStaging decides.
func (p *publisher) build(ctx context.Context, name, sql string) error {
	exact := false
	err := retryLocked(ctx, p.d.Staging, func() error {
		return inTx(ctx, p.c, 10*time.Second, func() error {
			if err := p.exec(ctx, sql); err != nil {
				return err
			}
			if n := p.totals.Applied; n == 0 || n > maxExact {
				return nil
			}
			// The index is new, so its number is of now; a table with options of its
			// own may keep an older one.
			err := p.c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
				WHERE t.oid = to_regclass($1) AND i.relname = $2 AND x.indpred IS NULL AND t.reloptions IS NULL AND t.reltuples = $3 AND i.reltuples = $3)`,
				p.d.staging().sql(), name, float32(p.totals.Applied)).Scan(&exact)
			return classify(err, "read the number of rows of staging")
		})
	})
	if err != nil {
		return err
	}
	p.counted = p.counted || exact
	return nil
}

// step stores cursor and receipt and closes the publish's ledger row, in the
// transaction that makes the rows visible (P2, P8).
func (p *publisher) step(ctx context.Context, receipt *engine.Receipt) error {
	entry, err := p.s.holdFence(ctx, p.c, p.t, p.d, p.p.Split, p.p.Claim)
	if err != nil {
		return err
	}
	if entry.Done {
		return &engine.StaleError{What: "claim", Subject: "split " + p.p.Split + ", which is published,", Ours: p.p.Claim, Have: entry.Claim}
	}
	// A State that was set back asks again and may have other totals by then.
	kept := *receipt
	kept.Published = &p.p.Totals
	raw, err := json.Marshal(kept) //nolint:musttag // the engine's receipt is stored under its field names
	if err != nil {
		return engine.Bugf("write the publish's receipt: %w", err)
	}
	k := keyOf(p.t)
	tag, err := p.c.Exec(ctx, `UPDATE `+p.s.ledger.rows()+` SET epoch = epoch + 1, done = true, receipt = $7::json, updated_at = now()
		WHERE `+rowWhere+` AND claim = $6 AND NOT done`, k.installation, k.route, k.resource, p.t.RunID, p.p.Split, p.p.Claim, string(raw))
	if err != nil {
		return classify(err, "write the publish's ledger row")
	}
	if tag.RowsAffected() != 1 {
		return &engine.StaleError{What: "claim", Subject: "split " + p.p.Split, Ours: p.p.Claim, Have: entry.Claim}
	}
	if p.d.Unlogged {
		// P7: what is published is proved by logged rows from now on.
		if _, err := p.c.Exec(ctx, `WITH moved AS (DELETE FROM `+p.s.ledger.staged()+` WHERE `+runWhere+` RETURNING *)
			INSERT INTO `+p.s.ledger.rows()+` SELECT * FROM moved`, k.installation, k.route, k.resource, p.t.RunID); err != nil {
			return classify(err, "move ledger rows of %s to the log", p.t.Resource)
		}
	}
	var cursor any
	if len(p.p.Cursor) > 0 {
		cursor = string(p.p.Cursor)
	}
	_, err = p.c.Exec(ctx, `UPDATE `+p.s.ledger.fence()+` SET published_run = $4, cursor = $5::text::json, updated_at = now() WHERE `+fenceWhere,
		k.installation, k.route, k.resource, p.t.RunID, cursor)
	return classify(err, "store the cursor")
}

// exec runs a statement of the publish and notes it for the receipt.
func (p *publisher) exec(ctx context.Context, sql string) error {
	if _, err := p.c.Exec(ctx, sql); err != nil {
		return rowError(err, p.t.Resource, p.d.place())
	}
	p.ran = append(p.ran, sql)
	return nil
}

// apart runs a statement on staging in a transaction of its own, before the publish's.
func (p *publisher) apart(ctx context.Context, sql string) error {
	return retryLocked(ctx, p.d.Staging, func() error {
		return inTx(ctx, p.c, 10*time.Second, func() error { return p.exec(ctx, sql) })
	})
}

// addStaged adds staged rows to the target, in the publish's transaction.
func (p *publisher) addStaged(ctx context.Context) error {
	names := p.d.written()
	if p.t.Lineage {
		names = append(names, lineageRun, lineageTime)
	}
	list := idents("", names)
	if err := p.exec(ctx, "INSERT INTO "+p.d.place().sql()+" ("+list+") OVERRIDING SYSTEM VALUE SELECT "+list+" FROM "+p.d.staging().sql()); err != nil {
		return err
	}
	if err := p.advance(ctx); err != nil {
		return err
	}
	return p.exec(ctx, "DROP TABLE "+p.d.staging().sql())
}

// advance moves the sequences behind the target's columns past the loaded values,
// so that rows that others insert get new ones. A sequence never moves back.
func (p *publisher) advance(ctx context.Context) error {
	if p.t.Write == engine.WriteDelete {
		return nil
	}
	rows, err := p.c.Query(ctx, `SELECT a.attname::text, d.objid::regclass::text, q.seqincrement < 0
		FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
		JOIN pg_sequence q ON q.seqrelid = d.objid
		WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = to_regclass($1) AND d.deptype IN ('a', 'i')`,
		p.d.place().sql())
	if err != nil {
		return classify(err, "look for sequences of %s", p.t.Name)
	}
	type sequence struct {
		Column, Name string
		Down         bool
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sequence])
	if err != nil {
		return classify(err, "look for sequences of %s", p.t.Name)
	}
	for _, q := range found {
		if p.d.byName(q.Column) == nil {
			continue
		}
		extreme, past := "max", ">"
		if q.Down {
			extreme, past = "min", "<"
		}
		col := ident(q.Column)
		sql := fmt.Sprintf(`SELECT setval(%s::regclass, v) FROM (SELECT %s(%s)::bigint AS v FROM %s) t, %s q
			WHERE v %s q.last_value OR v = q.last_value AND NOT q.is_called`, literal(q.Name), extreme, col, p.d.place().sql(), q.Name, past)
		if _, err := p.c.Exec(ctx, sql); err != nil {
			if code(err) == codeNoRights {
				return engine.Permanentf("run: GRANT SELECT, UPDATE ON SEQUENCE "+q.Name+" TO the sink's role", "advance sequence %s of %s past the loaded rows: %w", q.Name, p.t.Name, err)
			}
			return classify(err, "advance sequence %s of %s past the loaded rows", q.Name, p.t.Name)
		}
	}
	return nil
}
