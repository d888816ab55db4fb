package enginetest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// CanonicalRows returns the rows of a record in canonical encoding.
func CanonicalRows(s *schema.Schema, rec arrow.RecordBatch) ([][]byte, error) {
	h := integrity.NewHasher(s)
	out := make([][]byte, rec.NumRows())
	for i := range out {
		var err error
		if out[i], err = h.AppendRow(nil, rec, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// DigestOf returns the content digest of canonical rows.
func DigestOf(rows [][]byte) integrity.Digest {
	var d integrity.Digest
	for _, r := range rows {
		d.AddRow(r)
	}
	return d
}

// RequireSameRows fails unless both are the same rows, whatever their order.
func RequireSameRows(t testing.TB, want, got [][]byte, what string) {
	t.Helper()
	want, got = sorted(want), sorted(got)
	if slices.EqualFunc(want, got, bytes.Equal) {
		return
	}
	text := fmt.Sprintf("%s: %d rows, want %d", what, len(got), len(want))
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			t.Fatalf("%s; missing: %x", text, want[i])
		case i >= len(want):
			t.Fatalf("%s; too many: %x", text, got[i])
		case !bytes.Equal(want[i], got[i]):
			t.Fatalf("%s; first difference in order:\n got %x\nwant %x", text, got[i], want[i])
		}
	}
}

func sorted(rows [][]byte) [][]byte {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, bytes.Compare)
	return rows
}
