package pgsink

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// Freeze implements engine.Fencer.
func (s *Session) Freeze(ctx context.Context, t *engine.Target, plan *engine.ResourcePlan) error {
	d, err := s.detailOf(t)
	if err != nil {
		return err
	}
	return s.with(ctx, "", func(c *conn) error {
		var victims []backend
		err := inTx(ctx, c, 0, func() error {
			var err error
			victims, err = s.freeze(ctx, c, t, d, plan)
			return err
		})
		if err != nil {
			return err
		}
		// P5: who worked on the plan that is replaced holds its staging.
		if err := s.terminate(ctx, c, t.Resource, victims); err != nil {
			return err
		}
		// Staging of other generations of this run holds nothing that counts.
		return s.dropStaging(ctx, c, t, func(p place) bool { return ofRun(t, p.Table) && p.Table != d.Staging && p.Table != d.Delta },
			func(f *fenceRow) bool { return f.FrozenRun == t.RunID && f.FrozenGeneration == t.Generation })
	})
}

func (s *Session) freeze(ctx context.Context, c *conn, t *engine.Target, d *detail, plan *engine.ResourcePlan) (victims []backend, err error) {
	k := keyOf(t)
	var f fenceRow
	var cursor *string
	err = f.scan(withMore{c.QueryRow(ctx, `SELECT `+fenceColumns+`, cursor::text FROM `+s.ledger.fence()+` WHERE `+fenceWhere+` FOR UPDATE`,
		k.installation, k.route, k.resource), []any{&cursor}})
	if err != nil {
		return nil, classify(err, "freeze the plan of %s", t.Resource)
	}
	if f.RunID != t.RunID || f.Ordinal != t.Ordinal {
		return nil, &engine.StaleError{What: "ordinal", Subject: t.Resource, Ours: t.Ordinal, Have: f.Ordinal}
	}
	if f.PublishedRun == t.RunID {
		return nil, nil
	}
	// A stream's cursor moves on with every epoch of the run itself, and a member's is
	// gone while its rows are read.
	if plan.Read != engine.ReadCDC || f.FrozenRun != t.RunID {
		if err := follows(t, plan, cursor); err != nil {
			return nil, err
		}
	}
	if f.FrozenRun == t.RunID && f.FrozenGeneration >= t.Generation && f.Claimed {
		same := f.FrozenGeneration == t.Generation
		if same {
			if same, err = s.frozenIs(ctx, c, t, plan); err != nil {
				return nil, err
			}
		}
		if !same {
			// Somebody works on the frozen plan: this caller does not own the run any more.
			return nil, &engine.StaleError{What: "generation", Subject: t.Resource, Ours: int64(t.Generation), Have: int64(f.FrozenGeneration)}
		}
		if err := s.checkTwin(ctx, c, t, d); err != nil {
			return nil, err
		}
	} else if victims, err = s.storePlan(ctx, c, t, plan); err != nil {
		return nil, err
	}
	return victims, s.storeSplits(ctx, c, t, d, plan)
}

// follows requires an incremental plan to start where the destination is: it was
// set back, or went on meanwhile, and rows would be missing or doubled (P3).
func follows(t *engine.Target, plan *engine.ResourcePlan, cursor *string) error {
	if plan.Read != engine.ReadIncremental && plan.Read != engine.ReadCDC {
		return nil
	}
	var have json.RawMessage
	at := "at no cursor"
	if cursor != nil {
		have, at = json.RawMessage(*cursor), "at "+*cursor
	}
	if engine.SameJSON(have, plan.From) {
		return nil
	}
	return fmt.Errorf("freeze the plan of %s: the destination is %s, the plan follows on %s: %w", t.Resource, at, cmp.Or(string(plan.From), "none"), engine.ErrPlanVoid)
}

// frozenIs tells whether the frozen plan is cut into the same splits as this one.
func (s *Session) frozenIs(ctx context.Context, c *conn, t *engine.Target, plan *engine.ResourcePlan) (bool, error) {
	k := keyOf(t)
	var raw *string
	err := c.QueryRow(ctx, `SELECT plan->'source'->>'splits' FROM `+s.ledger.fence()+` WHERE `+fenceWhere, k.installation, k.route, k.resource).Scan(&raw)
	if err != nil {
		return false, classify(err, "read the frozen plan of %s", t.Resource)
	}
	var have []engine.Split
	if raw != nil {
		if err := json.Unmarshal([]byte(*raw), &have); err != nil {
			return false, engine.Bugf("read the frozen plan of %s: %w", t.Resource, err)
		}
	}
	return slices.EqualFunc(have, plan.Source.Splits, func(a, b engine.Split) bool {
		return a.ID == b.ID && engine.SameJSON(a.Descriptor, b.Descriptor)
	}), nil
}

// storePlan keeps the plan beside the fence, for a State that does not know it
// (P1), and deletes the rows of a plan that this one replaces. It returns the
// sessions that had claimed those.
func (s *Session) storePlan(ctx context.Context, c *conn, t *engine.Target, plan *engine.ResourcePlan) ([]backend, error) {
	victims, err := s.deleteRows(ctx, c, t, runWhere)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(plan)
	if err != nil {
		return nil, engine.Bugf("write the plan of %s: %w", t.Resource, err)
	}
	k := keyOf(t)
	// Rows that changes are kept apart from are not current until the publish.
	apart := plan.Read == engine.ReadCDC && plan.Stream == nil && len(plan.Source.Splits) > 0
	_, err = c.Exec(ctx, `UPDATE `+s.ledger.fence()+` SET frozen_run = $4, frozen_generation = $5, plan = $6::json, claimed = false, published_run = '',
			cursor = CASE WHEN $7 THEN NULL ELSE cursor END, updated_at = now()
		WHERE `+fenceWhere, k.installation, k.route, k.resource, t.RunID, t.Generation, string(raw), apart)
	return victims, classify(err, "freeze the plan of %s", t.Resource)
}

// deleteRows deletes ledger rows of the target, $4 being its run and further
// parameters from $5 on, and returns the sessions that had claimed them.
func (s *Session) deleteRows(ctx context.Context, c *conn, t *engine.Target, where string, more ...any) ([]backend, error) {
	k := keyOf(t)
	args := append([]any{k.installation, k.route, k.resource, t.RunID}, more...)
	var victims []backend
	for _, table := range []string{s.ledger.rows(), s.ledger.staged()} {
		rows, err := c.Query(ctx, `WITH gone AS (DELETE FROM `+table+` WHERE `+where+` RETURNING backend_pid, backend_start)
			SELECT DISTINCT backend_pid, backend_start FROM gone WHERE backend_pid IS NOT NULL`, args...)
		if err != nil {
			return nil, classify(err, "delete ledger rows of %s", t.Resource)
		}
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[backend])
		if err != nil {
			return nil, classify(err, "delete ledger rows of %s", t.Resource)
		}
		victims = append(victims, found...)
	}
	return victims, nil
}

// storeSplits writes the ledger rows that are not there.
func (s *Session) storeSplits(ctx context.Context, c *conn, t *engine.Target, d *detail, plan *engine.ResourcePlan) error {
	k := keyOf(t)
	ids := make([]string, 0, len(plan.Source.Splits))
	descriptors := make([]string, 0, len(plan.Source.Splits))
	for _, sp := range plan.Source.Splits {
		ids = append(ids, sp.ID)
		descriptors = append(descriptors, jsonText(sp.Descriptor))
	}
	publish := engine.PublishSplit(t.Resource)
	for _, part := range []struct {
		table       string
		ids, descrs []string
	}{{s.table(t, d, ""), ids, descriptors}, {s.ledger.rows(), []string{publish}, []string{"null"}}} {
		if _, err := c.Exec(ctx, `INSERT INTO `+part.table+` (installation, route, resource, run_id, split, generation, descriptor)
			SELECT $1::text, $2::text, $3::text, $4::text, s.id, $5::int, s.descriptor::json
			FROM unnest($6::text[], $7::text[]) s(id, descriptor) ON CONFLICT DO NOTHING`,
			k.installation, k.route, k.resource, t.RunID, t.Generation, part.ids, part.descrs); err != nil {
			return classify(err, "freeze the plan of %s", t.Resource)
		}
	}
	return nil
}

func jsonText(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "null"
	}
	return string(raw)
}
