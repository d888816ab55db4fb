package pgsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// without leaves the columns that the target computes out of what is encoded.
func (w *writer) without(fields []schema.Field, cols []pgcopy.EncodeColumn) ([]schema.Field, []pgcopy.EncodeColumn) {
	var f []schema.Field
	var c []pgcopy.EncodeColumn
	for i := range w.d.Columns {
		if w.d.Columns[i].Generated {
			w.cut = append(w.cut, i)
			continue
		}
		f, c = append(f, fields[i]), append(c, cols[i])
	}
	return f, c
}

// kept returns the record without the columns in cut; the caller releases it.
func (w *writer) kept(rec arrow.RecordBatch) arrow.RecordBatch {
	if len(w.cut) == 0 {
		rec.Retain()
		return rec
	}
	var fields []arrow.Field
	var cols []arrow.Array
	for i, f := range rec.Schema().Fields() {
		if !slices.Contains(w.cut, i) {
			fields, cols = append(fields, f), append(cols, rec.Column(i))
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, rec.NumRows())
}

// encode appends rows of a record as tuples. Values that no column of this type
// can hold (a NUL in a text, a number out of range) follow the column's policy.
func (w *writer) encode(dst []byte, whole arrow.RecordBatch, from, to int) ([]byte, error) {
	rec := w.kept(whole)
	defer rec.Release()
	w.misfits = w.misfits[:0]
	dst, err := w.encoder.AppendTuples(dst, rec, from, to)
	var misfit *pgcopy.RowError
	if errors.As(err, &misfit) {
		hint := "correct the value, or state a value policy for the column (null, clamp, set_aside)"
		if !misfit.Clampable {
			hint = "correct the value, or state a value policy for the column (null, set_aside)"
		}
		return dst, &engine.Error{Class: engine.Permanent, Err: misfit.ValueError(w.t.Resource, w.keyOf(whole, misfit.Row)), Hint: hint}
	}
	if err != nil {
		return dst, fmt.Errorf("write %s: %w", w.t.Resource, err)
	}
	if len(w.misfits) > 0 {
		return dst, w.settle(whole, rec)
	}
	return dst, nil
}

// onMisfit says what the encoder does with a value, by the column's policy.
func (w *writer) onMisfit(e *pgcopy.RowError) pgcopy.Action {
	c := w.d.bySource(e.Name)
	if c == nil {
		return pgcopy.ActionFail
	}
	switch {
	case c.Policy == engine.PolicyNull && !c.NotNull && !contains(w.d.Key, c.Name):
		w.misfits = append(w.misfits, e)
		return pgcopy.ActionNull
	case c.Policy == engine.PolicyClamp && e.Clampable:
		w.misfits = append(w.misfits, e)
		return pgcopy.ActionClamp
	case c.Policy == engine.PolicySetAside:
		w.misfits = append(w.misfits, e)
		return pgcopy.ActionSkip
	}
	return pgcopy.ActionFail
}

// settle counts what the encoder did, keeps the rows that it left out, and the
// difference that its changes make to the digest.
func (w *writer) settle(whole, rec arrow.RecordBatch) error {
	misfits := slices.Clone(w.misfits)
	done := map[int]bool{}
	skipped := map[int]bool{}
	for _, e := range misfits {
		c := w.d.bySource(e.Name)
		if c.Policy == engine.PolicySetAside {
			if skipped[e.Row] {
				continue
			}
			skipped[e.Row] = true
			values, err := rowValues(whole, e.Row)
			if err != nil {
				return err
			}
			w.aside = append(w.aside, engine.SetAsideRow{Column: e.Name, Key: w.keyOf(whole, e.Row), Reason: e.Reason, Values: values})
		}
		w.count(c, c.Policy, e.Reason, 1)
	}
	if !w.verify {
		return nil
	}
	for _, e := range misfits {
		if done[e.Row] {
			continue
		}
		done[e.Row] = true
		if err := w.difference(whole, rec, e.Row, skipped[e.Row]); err != nil {
			return err
		}
	}
	return nil
}

// difference adds the digest of a row as it was read, and takes away that of
// what is written in its place.
func (w *writer) difference(whole, rec arrow.RecordBatch, row int, skipped bool) error {
	one := whole.NewSlice(int64(row), int64(row)+1)
	defer one.Release()
	read, err := integrity.RecordDigest(&w.t.Schema, one)
	if err != nil {
		return fmt.Errorf("digest row %s of %s: %w", w.keyOf(whole, row), w.t.Resource, err)
	}
	w.out.Add(read)
	if skipped {
		return nil
	}
	if len(w.cut) > 0 {
		return engine.Permanentf("let the policy of the column be fail or set_aside, or verify counts",
			"write %s: a value policy changes a row from which the target computes a column, so that its digest can't be compared", w.t.Resource)
	}
	tuple, err := w.encoder.AppendTuples(nil, rec, row, row+1)
	if err != nil {
		return fmt.Errorf("write %s: %w", w.t.Resource, err)
	}
	infos := make([]pgcopy.TypeInfo, len(w.d.Columns))
	for i := range w.d.Columns {
		infos[i] = w.d.Columns[i].load().Info
	}
	digester, err := pgcopy.NewReadBackDigester(w.t.Schema.Fields, infos)
	if err != nil {
		return fmt.Errorf("write %s: %w", w.t.Resource, err)
	}
	if err := digester.Tuple(tuple); err != nil {
		return err
	}
	written, _ := digester.Take()
	w.out.Sub(written)
	return nil
}

// storeAside puts the rows that the encoder left out where the user wants them.
func (w *writer) storeAside(ctx context.Context) error {
	if len(w.aside) == 0 {
		return nil
	}
	return w.putAside(ctx, w.aside)
}

// keyOf writes a row's key as "id=3".
func (w *writer) keyOf(rec arrow.RecordBatch, row int) string {
	var parts []string
	for _, k := range w.t.Schema.Key {
		if i := w.t.Schema.Index(k); i >= 0 && i < int(rec.NumCols()) {
			parts = append(parts, k+"="+rec.Column(i).ValueStr(row))
		}
	}
	return strings.Join(parts, ", ")
}

// rowValues writes a row as a JSON object.
func rowValues(rec arrow.RecordBatch, row int) (json.RawMessage, error) {
	values := make(map[string]any, rec.NumCols())
	for i, f := range rec.Schema().Fields() {
		values[f.Name] = rec.Column(i).GetOneForMarshal(row)
	}
	raw, err := json.Marshal(values)
	if err != nil {
		return nil, engine.Bugf("write a row as JSON: %w", err)
	}
	return raw, nil
}
