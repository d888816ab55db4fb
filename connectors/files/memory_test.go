//go:build !race

package files

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// memoryChild is set in the process that TestMemory measures.
const memoryChild = "TRANSHIP_TEST_MEMORY_CHILD"

// TestMemory: two slots that write as fast as they can stay below 256 MB, with
// wide rows below 512 MB (invariant 11). The peak is the kernel's, of a process
// of its own; the race detector would multiply it.
func TestMemory(t *testing.T) {
	if what := os.Getenv(memoryChild); what != "" {
		t.Setenv(memoryChild, "")
		what, format, _ := strings.Cut(what, " ")
		// As a worker does with its budget: without a limit, garbage may be as
		// much as what is in use.
		limit := int64(256 << 20)
		if what == "wide" {
			limit = 512 << 20
		}
		debug.SetMemoryLimit(limit * 8 / 10)
		writeMuch(t, what, format)
		fmt.Printf("peak %d\n", peakKB(t))
		return
	}
	for _, c := range []struct {
		what, format string
		limitMB      int
	}{
		{"many", FormatParquet, 256}, {"many", FormatJSONL, 256},
		{"wide", FormatParquet, 512}, {"wide", FormatJSONL, 512}, {"wide", FormatCSV, 512},
	} {
		t.Run(c.what+" "+c.format, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestMemory$", "-test.v")
			cmd.Env = append(os.Environ(), memoryChild+"="+c.what+" "+c.format)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			_, rest, ok := strings.Cut(string(out), "peak ")
			require.True(t, ok, "%s", out)
			var kb int
			_, err = fmt.Sscan(rest, &kb)
			require.NoError(t, err)
			t.Logf("%s %s: peak %d MB", c.what, c.format, kb>>10)
			require.Less(t, kb>>10, c.limitMB)
		})
	}
}

func peakKB(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(status), "VmHWM:")
	require.True(t, ok)
	var kb int
	_, err = fmt.Sscan(rest, &kb)
	require.NoError(t, err)
	return kb
}

// writeMuch applies an epoch in each of two slots.
func writeMuch(t *testing.T, what, format string) {
	t.Helper()
	s := benchTable()
	slots, times := 2, 60
	var recs []arrow.RecordBatch
	if what == "wide" {
		s = schema.Schema{Key: []string{"id"}, Fields: []schema.Field{key("id"), field("s", kind(schema.String))}}
		slots, times = 1, 4
		recs = []arrow.RecordBatch{wideRecord(t, &s, 10), wideRecord(t, &s, 50<<20)}
	} else {
		for k := range 3 {
			recs = append(recs, benchRecord(&s, 20000, 20000*k))
		}
	}
	batches := make([]*engine.Batch, len(recs))
	for i, rec := range recs {
		batches[i] = batchOf(t, &s, "public.t", rec)
	}
	r := openRig(t, map[string]any{"path": t.TempDir(), "format": format})
	req := r.request(&table{name: "public.t", schema: s}, run1, 1, engine.WriteReplace)
	if what == "many" {
		req.Verify = engine.VerifyCounts
	}
	target := r.plan(req)
	var wg sync.WaitGroup
	for slot := range slots {
		wg.Go(func() {
			n := 0
			var end engine.EpochEnd
			_, err := r.s.Apply(context.Background(), &engine.Epoch{
				Targets: map[string]*engine.Target{"public.t": target}, Split: fmt.Sprintf("public.t/%d", slot), Claim: 1, Number: 1,
				Next: func(context.Context) (*engine.Batch, error) {
					if n == times {
						return nil, io.EOF
					}
					b := batches[n%len(batches)]
					n++
					end.Rows += int64(b.Rows)
					return b, nil
				},
				End: func() engine.EpochEnd { return end },
			})
			if err != nil {
				t.Errorf("apply: %v", err)
			}
		})
	}
	wg.Wait()
}

// wideRecord is one row with a text of the given size.
func wideRecord(t *testing.T, s *schema.Schema, size int) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(1)
	text := make([]byte, size)
	for i := range text {
		text[i] = byte('a' + i*i%26)
	}
	b.Field(1).(*array.StringBuilder).BinaryBuilder.Append(text)
	rec := b.NewRecordBatch()
	_, err := integrity.RecordDigest(s, rec)
	require.NoError(t, err)
	return rec
}
