package memsource

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
)

var _ engine.RangePlanner = (*Session)(nil)

// PlanRange implements [engine.RangePlanner].
func (s *Session) PlanRange(ctx context.Context, req engine.PlanRequest, r engine.CursorRange) (*engine.SourcePlan, error) {
	return s.gated(ctx, req, func(req engine.PlanRequest) (*engine.SourcePlan, error) {
		out, err := s.plan(req)
		if err != nil {
			return nil, err
		}
		lo, hi := int64(math.MinInt64), s.db.clock
		if r.From != "" {
			if lo, err = strconv.ParseInt(r.From, 10, 64); err != nil {
				return nil, engine.Permanentf("give a number", "resource %q: range from %q: %w", req.Resource, r.From, err)
			}
			lo-- // ranges of splits leave their lower end out
		}
		if r.To != "" {
			if hi, err = strconv.ParseInt(r.To, 10, 64); err != nil {
				return nil, engine.Permanentf("give a number", "resource %q: range to %q: %w", req.Resource, r.To, err)
			}
		}
		if req.Write == engine.WriteAppend {
			var last cursor
			if out.Window == nil || json.Unmarshal(req.Cursor, &last) != nil {
				return nil, engine.Permanentf("start a plain run first", "resource %q: no run has read it yet", req.Resource)
			}
			hi = min(hi, last.UpTo)
		}
		t := s.db.tables[req.Resource]
		col := t.schema.Index(req.Selection.Cursor)
		var values []int64
		for _, row := range t.at(s.db.version) {
			if v, ok := memrow.Int(memrow.Field(row.Wire, col)); ok && v > lo && v <= hi {
				values = append(values, v)
			}
		}
		slices.Sort(values)
		out.NextCursor = req.Cursor
		out.Coverage = "rows of a range of the cursor, as they are now"
		out.Splits, err = s.cut(t, slices.Compact(values), descriptor{Lo: lo, Hi: max(lo, hi), Cursor: req.Selection.Cursor})
		return out, err
	})
}
