package pgsource

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// rowWatch looks at the ordering columns of tuples: for positions, for keys that
// nothing proves, and for the rows of an incremental window.
type rowWatch struct {
	resource string
	width    int
	// order are the indexes of the ordering columns among the fields.
	order  []int
	fields []schema.Field
	asText []bool
	// unproved asks for doubles and NULLs; cursor is the number of leading order
	// columns that are not the key.
	unproved bool
	skip     map[engine.RowID]struct{}
	window   bool
	ids      *pgcopy.Digester

	values [][]byte
	mini   []byte
	canon  []byte
	prev   []byte
	noteAt []byte
	hasRow bool
}

func newRowWatch(d *descriptor, req *engine.ReadRequest, asText []bool) (*rowWatch, error) {
	s := &req.Plan.Resource.Schema
	w := &rowWatch{resource: req.Plan.Resource.Name, width: len(s.Fields), unproved: d.Unproved,
		skip: req.Skip, window: d.Way == byCursor && (req.Remember || len(req.Skip) > 0)}
	for _, name := range d.Order {
		i := s.Index(name)
		if i < 0 {
			return nil, engine.Bugf("%s: the plan lacks its key column %q", w.resource, name)
		}
		w.order = append(w.order, i)
		w.fields = append(w.fields, s.Fields[i])
		w.asText = append(w.asText, asText[i])
	}
	if !w.window {
		return w, nil
	}
	var err error
	w.ids, err = pgcopy.NewDigester(w.fields, w.asText)
	return w, err
}

// active tells whether every row must be looked at.
func (w *rowWatch) active() bool { return w.window || w.unproved }

// pick finds the ordering columns of a tuple, borrowed from it; a NULL is nil.
func (w *rowWatch) pick(tuple []byte) error {
	var err error
	if w.values, err = pgcopy.SplitTuple(tuple, w.values[:0]); err != nil {
		return err
	}
	if len(w.values) != w.width {
		return engine.Bugf("%s: a row has %d columns where %d are expected", w.resource, len(w.values), w.width)
	}
	return nil
}

// look checks a row's key and, in a window, computes its identity and tells
// whether an earlier run applied it.
func (w *rowWatch) look(tuple []byte) (id engine.RowID, skip bool, err error) {
	if err := w.pick(tuple); err != nil {
		return id, false, err
	}
	w.mini = binary.BigEndian.AppendUint16(w.mini[:0], uint16(len(w.order)))
	for n, i := range w.order {
		v := w.values[i]
		if v == nil {
			return id, false, engine.Permanentf("give a key whose columns hold no NULL, or filter such rows out with where",
				"%s: key column %q is NULL in a row", w.resource, w.fields[n].Name)
		}
		w.mini = binary.BigEndian.AppendUint32(w.mini, uint32(len(v)))
		w.mini = append(w.mini, v...)
	}
	if w.unproved {
		if w.hasRow && bytes.Equal(w.mini, w.prev) {
			return id, false, engine.Permanentf("give columns that identify a row as key",
				"%s: the key given for it is not unique: two rows have %s", w.resource, w.keyText(tuple))
		}
		w.prev, w.hasRow = append(w.prev[:0], w.mini...), true
	}
	if !w.window {
		return id, false, nil
	}
	if w.canon, err = w.ids.AppendCanonical(w.canon[:0], w.mini); err != nil {
		return id, false, err
	}
	id = engine.RowID(xxh3.Hash128Seed(w.canon, integrity.Seed).Bytes())
	_, skip = w.skip[id]
	return id, skip, nil
}

// note keeps the ordering columns of a row whose tuple will be gone.
func (w *rowWatch) note(tuple []byte) error {
	if len(w.order) == 0 {
		return nil
	}
	if err := w.pick(tuple); err != nil {
		return err
	}
	w.noteAt = w.noteAt[:0]
	for _, i := range w.order {
		v := w.values[i]
		n := len(v)
		if v == nil {
			n = -1
		}
		w.noteAt = binary.BigEndian.AppendUint32(w.noteAt, uint32(int32(n)))
		w.noteAt = append(w.noteAt, v...)
	}
	return nil
}

// noted returns what note kept.
func (w *rowWatch) noted() ([]keyValue, error) {
	if len(w.order) == 0 || len(w.noteAt) == 0 {
		return nil, nil
	}
	values := make([][]byte, 0, len(w.order))
	for b := w.noteAt; len(b) >= 4; {
		n := int32(binary.BigEndian.Uint32(b))
		b = b[4:]
		if n < 0 {
			values = append(values, nil)
			continue
		}
		values = append(values, b[:n:n])
		b = b[n:]
	}
	return w.keyValues(values)
}

// key returns the ordering columns of a tuple as a position has them.
func (w *rowWatch) key(tuple []byte) ([]keyValue, error) {
	if len(w.order) == 0 {
		return nil, nil
	}
	if err := w.pick(tuple); err != nil {
		return nil, err
	}
	values := make([][]byte, len(w.order))
	for n, i := range w.order {
		values[n] = w.values[i]
	}
	return w.keyValues(values)
}

func (w *rowWatch) keyValues(values [][]byte) ([]keyValue, error) {
	key := make([]keyValue, len(values))
	for n, v := range values {
		if v == nil {
			return nil, engine.Permanentf("give a key whose columns hold no NULL, or filter such rows out with where",
				"%s: key column %q is NULL in a row", w.resource, w.fields[n].Name)
		}
		if text, ok := keyText(v, w.fields[n].Type.Kind, w.asText[n]); ok {
			key[n].Text = &text
		} else {
			b := append([]byte{}, v...)
			key[n].Binary = &b
		}
	}
	return key, nil
}

// keyText writes a binary field as the server would, for the kinds where that is
// certain; others stay binary and are printed by the server.
func keyText(v []byte, kind schema.Kind, isText bool) (string, bool) {
	if isText || kind == schema.String || kind == schema.Enum {
		return string(v), utf8.Valid(v)
	}
	switch {
	case kind.Integer():
		var n int64
		switch len(v) {
		case 2:
			n = int64(int16(binary.BigEndian.Uint16(v)))
		case 4:
			n = int64(int32(binary.BigEndian.Uint32(v)))
			if kind == schema.Uint32 {
				n = int64(binary.BigEndian.Uint32(v))
			}
		case 8:
			n = int64(binary.BigEndian.Uint64(v))
		default:
			return "", false
		}
		return strconv.FormatInt(n, 10), true
	case kind == schema.UUID && len(v) == 16:
		return uuid.UUID(v).String(), true
	case kind == schema.Bool && len(v) == 1:
		return strconv.FormatBool(v[0] != 0), true
	}
	return "", false
}

// keyText prints a row's key for messages, as "id=3, day=…".
func (w *rowWatch) keyText(tuple []byte) string {
	if w.pick(tuple) != nil {
		return ""
	}
	parts := make([]string, 0, len(w.order))
	for n, i := range w.order {
		text, ok := keyText(w.values[i], w.fields[n].Type.Kind, w.asText[n])
		if !ok {
			text = fmt.Sprintf("\\x%.40x", w.values[i])
		}
		if len(text) > 60 {
			text = strings.ToValidUTF8(text[:60], "") + "…"
		}
		parts = append(parts, w.fields[n].Name+"="+text)
	}
	return strings.Join(parts, ", ")
}
