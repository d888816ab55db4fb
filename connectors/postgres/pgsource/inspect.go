package pgsource

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// RankCursors returns all columns of a resource, the best cursors first, with the
// reasons.
func (s *Session) RankCursors(ctx context.Context, resource string) ([]engine.CursorChoice, error) {
	var rel *relation
	err := s.query(ctx, func(tx pgx.Tx) error {
		var err error
		rel, err = s.find(ctx, tx, resource)
		return err
	})
	if err != nil {
		return nil, err
	}
	choices := make([]engine.CursorChoice, len(rel.columns))
	for i := range rel.columns {
		choices[i] = rank(rel, &rel.columns[i])
	}
	slices.SortStableFunc(choices, func(a, b engine.CursorChoice) int {
		if a.Eligible != b.Eligible {
			if a.Eligible {
				return -1
			}
			return 1
		}
		return b.Score - a.Score
	})
	return choices, nil
}

// rank scores one column: what finds changed rows comes before what finds new rows
// only, and a time that the database sets before one that an application sets (P15).
func rank(rel *relation, c *column) engine.CursorChoice {
	f := &c.field
	choice := engine.CursorChoice{Column: f.Name, Type: f.Native.Type}
	if !c.selectable {
		choice.Reason = "the role may not read it"
		return choice
	}
	if !c.orderable {
		choice.Reason = "the type " + f.Native.Type + " has no order"
		return choice
	}
	choice.Eligible = true
	var why []string
	add := func(points int, reason string) {
		choice.Score += points
		why = append(why, reason)
	}
	add(kindScore(f.Type.Kind))
	if points, reason := nameScore(f); points != 0 {
		add(points, reason)
	}
	if transactionTime(c) {
		add(20, "set to the transaction's time by its default")
	}
	if f.Identity != "" || strings.HasPrefix(f.Default, "nextval(") {
		add(20, "numbered by the database, but transactions may commit out of order")
	}
	if rel.indexedBy([]string{f.Name}) {
		add(10, "indexed")
	} else {
		add(0, "not indexed: each run scans and sorts the table")
	}
	if f.Nullable {
		add(-10, "may be NULL: such rows are skipped and counted")
	}
	choice.Reason = strings.Join(why, "; ")
	return choice
}

func kindScore(k schema.Kind) (int, string) {
	switch {
	case k == schema.TimestampTZ:
		return 60, "an instant"
	case k == schema.Timestamp:
		return 50, "a time without zone"
	case k.Integer():
		return 30, "a number: finds new rows, and changed ones only if it grows with each change"
	case k == schema.Date:
		return 25, "a date: rows of the same day are looked at again"
	}
	return 5, "ordered, but rarely growing"
}

// nameScore reads what names usually promise.
func nameScore(f *schema.Field) (int, string) {
	name := strings.ToLower(f.Name)
	contains := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(name, w) {
				return true
			}
		}
		return false
	}
	timed := timed(f.Type.Kind)
	switch {
	case timed && contains("updat", "modif", "chang", "last_", "sync", "touched"):
		return 30, "named like a time of the last change"
	case timed && contains("creat", "insert", "added"):
		return 10, "named like a time of creation: changed rows are not found"
	case timed && contains("birth", "due", "expir", "valid", "schedul", "deliver", "start", "end"):
		return -20, "named like a time that does not follow changes"
	case f.Type.Kind.Integer() && contains("version", "revision", "seq", "lsn", "rowver"):
		return 15, "named like a version"
	}
	return 0, ""
}
