package pgsource

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

// Discover lists what the role can read and any of the patterns matches; no
// patterns means all. Partitions are part of their table and not listed, unless
// a pattern without wildcards names one. What the role has no right to is left out
// when a wildcard found it; by its name it is an error that says which right lacks.
func (s *Session) Discover(ctx context.Context, patterns []string) ([]engine.Resource, error) {
	wanted := make([]pattern, len(patterns))
	for i, p := range patterns {
		var err error
		if wanted[i], err = parsePattern(p); err != nil {
			return nil, err
		}
	}
	named := slices.DeleteFunc(slices.Clone(wanted), func(p pattern) bool { return !p.literal() })
	var rels []*relation
	err := s.query(ctx, func(tx pgx.Tx) error {
		if len(named) > 0 {
			found, err := s.load(ctx, tx, named)
			if err != nil {
				return err
			}
			rels = append(rels, found...)
		}
		if len(named) == len(wanted) && len(wanted) > 0 {
			return nil
		}
		all, err := s.load(ctx, tx, nil)
		if err != nil {
			return err
		}
		for _, r := range all {
			matches := len(wanted) == 0 || slices.ContainsFunc(wanted, func(p pattern) bool { return p.matches(r.schema, r.name) })
			known := slices.ContainsFunc(rels, func(o *relation) bool { return o.oid == r.oid })
			if matches && !known && r.partly && len(r.columns) > 0 {
				rels = append(rels, r)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	resources := make([]engine.Resource, 0, len(rels))
	for _, r := range rels {
		if err := r.checkReadable(); err != nil {
			return nil, err
		}
		columns := slices.DeleteFunc(slices.Clone(r.columns), func(c column) bool { return !c.selectable })
		key := r.key()
		if slices.ContainsFunc(key, func(k string) bool {
			return !slices.ContainsFunc(columns, func(c column) bool { return c.field.Name == k })
		}) {
			key = nil
		}
		resources = append(resources, r.asResource(columns, key))
	}
	return resources, nil
}

func (r *relation) checkReadable() error {
	if !r.partly {
		return engine.Permanentf("GRANT USAGE ON SCHEMA "+pgconf.QuoteIdent(r.schema)+" and GRANT SELECT ON "+r.sql()+" TO the role",
			"%s: the role may not read this %s", r.resource(), kindName(r.kind))
	}
	if len(r.columns) == 0 {
		return engine.Permanentf("leave it out", "%s: the %s has no columns", r.resource(), kindName(r.kind))
	}
	return nil
}

// find loads one relation by the name that a pipeline uses.
func (s *Session) find(ctx context.Context, tx pgx.Tx, resource string) (*relation, error) {
	p, err := parsePattern(resource)
	if err != nil {
		return nil, err
	}
	rels, err := s.load(ctx, tx, []pattern{p})
	if err != nil {
		return nil, err
	}
	if len(rels) == 0 {
		return nil, engine.Permanentf("discover lists the names as the source has them; they are case-sensitive",
			"%s: there is no such table or view", resource)
	}
	return rels[0], rels[0].checkReadable()
}
