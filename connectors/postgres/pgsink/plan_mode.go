package pgsink

import (
	"context"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// mode plans what the write mode needs.
func (p *planner) mode(ctx context.Context) error {
	switch p.req.Write {
	case engine.WriteReplace:
		return p.replace(ctx)
	case engine.WriteAppend:
		return p.append()
	case engine.WriteMerge:
		return p.merge(ctx)
	case engine.WriteUpsert:
		p.t.Technique = "merged by key in each epoch (INSERT … ON CONFLICT DO UPDATE)"
		if p.exists != nil && !p.exists.unique(p.d.Key) {
			return engine.Permanentf(fmt.Sprintf("run: CREATE UNIQUE INDEX ON %s (%s)", p.d.place().sql(), idents("", p.d.Key)),
				"upsert into %s needs a unique index on its key (%s)", p.t.Name, strings.Join(p.d.Key, ", "))
		}
	default:
		p.t.Technique = "deleted by key in each epoch"
		for _, k := range p.d.Key {
			if p.exists.column(k) == nil {
				return engine.Permanentf("name a key that the target has", "delete from %s: it has no column %q", p.t.Name, k)
			}
		}
		p.d.Alter = nil
	}
	return nil
}

// replace plans staging and the way of its rows into the target.
func (p *planner) replace(ctx context.Context) error {
	p.t.Staged = true
	p.d.Staging = stagingName(p.t, p.d.Table)
	p.d.Technique = techniqueCreate
	if p.exists != nil {
		dep, err := p.s.inspect(ctx, p.c, p.exists)
		if err != nil {
			return err
		}
		how, why, err := dep.choose(p.exists, p.d.Key)
		if err != nil {
			return err
		}
		p.d.Technique = how
		p.t.Technique = how.words()
		if why != "" {
			p.t.Technique += ", since " + why
		}
	} else {
		p.t.Technique = techniqueCreate.words()
	}
	p.d.Unlogged = p.unlogged(p.d.Technique != techniqueCreate && p.d.Technique != techniqueSwap)
	return nil
}

// unlogged decides whether staging is written to the log. Staging that becomes
// the target must be logged in the end, and SET LOGGED writes it a second time;
// staging that is only read from need never be.
func (p *planner) unlogged(copied bool) bool {
	choice := p.s.options.Staging
	if p.options.Staging != "" {
		choice = p.options.Staging
	}
	switch choice {
	case StagingLogged:
		return false
	case StagingUnlogged:
		return true
	}
	return copied
}

// append plans rows that are added to the target, at once or at publish.
func (p *planner) append() error {
	p.t.Technique = "added in each epoch"
	if p.req.Read == engine.ReadFull && p.req.Plan.Consistency == engine.ConsistencySnapshot {
		// The snapshot can't be taken again: a read that has to begin anew must
		// not leave the first one's rows behind.
		p.t.Staged = true
		p.d.Staging = stagingName(p.t, p.d.Table)
		p.d.Unlogged = p.unlogged(true)
		p.t.Technique = "loaded into staging and added in one transaction at publish"
	}
	p.d.Index = p.exists == nil && p.req.Read == engine.ReadIncremental && len(p.d.Key) > 0
	w := p.req.Plan.Window
	if w == nil {
		return nil
	}
	if len(p.d.Key) == 0 {
		// Equal rows of a table without key can't be told apart here.
		p.t.RememberWindow = true
		return nil
	}
	c := p.d.bySource(w.Cursor)
	if c == nil {
		return engine.Permanentf("include the column", "the cursor %q of %s is not among the columns that are read", w.Cursor, p.t.Resource)
	}
	p.t.Window = w
	p.d.Cursor, p.d.UpTo = c.Name, w.UpTo
	return nil
}

const (
	setAsideTable = "table:"
	setAsideFile  = "file:"
)

// setAside checks the place for rows set aside.
func (p *planner) setAside() error {
	to := p.req.Policies.SetAside
	uses := p.req.Policies.Default == engine.PolicySetAside
	for _, v := range p.req.Policies.Columns {
		uses = uses || v == engine.PolicySetAside
	}
	switch {
	case to == "" && uses:
		return engine.Permanentf("name it: set_aside: table:<schema>.<name> or file:<path>", "%s sets rows aside and no place for them is named", p.t.Resource)
	case strings.HasPrefix(to, setAsideTable):
		parts, err := parseName(strings.TrimPrefix(to, setAsideTable))
		if err != nil {
			return err
		}
		if len(parts) == 1 {
			parts = []string{p.d.Schema, parts[0]}
		}
		if len(parts) != 2 || len(parts[0]) > maxName || len(parts[1]) > maxName || parts[0] == "" || parts[1] == "" {
			return engine.Permanentf("write it as table:<schema>.<name>", "set_aside of %s is %q", p.t.Resource, to)
		}
		p.d.SetAside = &place{parts[0], parts[1]}
	case to != "" && !strings.HasPrefix(to, setAsideFile):
		return engine.Permanentf("write table:<schema>.<name> or file:<path>", "set_aside of %s is %q", p.t.Resource, to)
	}
	return nil
}
