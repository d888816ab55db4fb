package pgsink

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tranship-io/tranship/engine"
)

// Adopt implements engine.Adopter: it reads what the destination knows of the
// route under any installation (P1).
func (s *Session) Adopt(ctx context.Context, r engine.Route) ([]engine.Adoption, error) {
	var found []engine.Adoption
	err := s.with(ctx, "", func(c *conn) error {
		missing, err := s.missingLedger(ctx, c)
		if err != nil || len(missing) > 0 {
			return err
		}
		found, err = s.adopt(ctx, c, r)
		return err
	})
	return found, err
}

func (s *Session) adopt(ctx context.Context, c *conn, r engine.Route) ([]engine.Adoption, error) {
	rows, err := c.Query(ctx, `SELECT installation, resource, ordinal, run_id, frozen_run, published_run, cursor::text, plan::text
		FROM `+s.ledger.fence()+` WHERE route = $1 AND pipeline = $2 AND source = $3 AND sink = $4 AND ordinal > 0
		ORDER BY installation, resource`, routeKey(r), r.Pipeline, r.Source, r.Sink)
	if err != nil {
		return nil, classify(err, "read the fences of pipeline %q", r.Pipeline)
	}
	defer rows.Close()
	var found []engine.Adoption
	for rows.Next() {
		var installation, frozen, published string
		var a engine.AdoptedResource
		var cursor, plan *string
		if err := rows.Scan(&installation, &a.Resource, &a.Ordinal, &a.RunID, &frozen, &published, &cursor, &plan); err != nil {
			return nil, classify(err, "read the fences of pipeline %q", r.Pipeline)
		}
		if cursor != nil {
			a.Cursor = json.RawMessage(*cursor)
		}
		a.Published = published != "" && published == a.RunID
		if plan != nil && frozen == a.RunID {
			a.Plan = new(engine.ResourcePlan)
			if err := json.Unmarshal([]byte(*plan), a.Plan); err != nil {
				return nil, engine.Permanentf("run the version of the program that wrote it, or drop the ledger row",
					"read the plan of %s that the destination holds: %w", a.Resource, err)
			}
		}
		if len(found) == 0 || found[len(found)-1].Installation != installation {
			found = append(found, engine.Adoption{Installation: installation})
		}
		last := &found[len(found)-1]
		last.Resources = append(last.Resources, a)
		if a.Ordinal > last.Ordinal {
			last.Ordinal, last.RunID = a.Ordinal, a.RunID
		}
	}
	if err := rows.Err(); err != nil {
		return nil, classify(err, "read the fences of pipeline %q", r.Pipeline)
	}
	for i := range found {
		for j := range found[i].Resources {
			a := &found[i].Resources[j]
			if a.Plan == nil {
				continue
			}
			if a.Ledger, err = s.entries(ctx, c, key{found[i].Installation, routeKey(r), a.Resource}, a.RunID); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// entries reads all ledger rows of a run's resource.
func (s *Session) entries(ctx context.Context, c *conn, k key, run string) ([]engine.LedgerEntry, error) {
	q := "SELECT " + entryColumns + " FROM %s WHERE " + runWhere
	rows, err := c.Query(ctx, fmt.Sprintf(q, s.ledger.rows())+" UNION ALL "+fmt.Sprintf(q, s.ledger.staged())+" ORDER BY 1",
		k.installation, k.route, k.resource, run)
	if err != nil {
		return nil, classify(err, "read the ledger of %s", k.resource)
	}
	defer rows.Close()
	var found []engine.LedgerEntry
	for rows.Next() {
		var e engine.LedgerEntry
		if err := scanEntry(&e, rows); err != nil {
			return nil, classify(err, "read the ledger of %s", k.resource)
		}
		found = append(found, e)
	}
	return found, classify(rows.Err(), "read the ledger of %s", k.resource)
}
