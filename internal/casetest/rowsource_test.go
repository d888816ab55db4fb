package casetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/rowtext"
	"github.com/tranship-io/tranship/engine/schema"
)

// rowSource is a source of one resource that is no database: rows in text form,
// handed over as Arrow records of a hundred rows.
type rowSource struct {
	name   string
	schema schema.Schema
	rows   [][]string
	// reads counts calls of Read.
	reads int
}

// arrowDoc is a document that reads from a rowSource.
func arrowDoc(sink, settings string, resources ...string) string {
	return strings.Replace(doc(sink, settings, resources...), `source: {connector: postgres, url: "${SOURCE_URL}"}`, "source: {connector: rows}", 1)
}

var (
	_ engine.Source        = (*rowSource)(nil)
	_ engine.SourceSession = (*rowSource)(nil)
)

func (s *rowSource) Spec() engine.Spec {
	return engine.Spec{Name: "rows", Title: "Rows", Config: &struct{}{}, Reads: []engine.ReadMode{engine.ReadFull}, Consistencies: []engine.Consistency{engine.ConsistencyChunked}}
}

func (s *rowSource) Open(context.Context, engine.Config, engine.OpenOptions) (engine.SourceSession, error) {
	return s, nil
}

func (s *rowSource) Identity() string { return "rows:" + s.name }

func (s *rowSource) Close(context.Context) error { return nil }

func (s *rowSource) resource() engine.Resource {
	return engine.Resource{Name: s.name, Path: []string{s.name}, Kind: "table", Schema: s.schema, Rows: int64(len(s.rows)), Bytes: -1}
}

func (s *rowSource) Discover(context.Context, []string) ([]engine.Resource, error) {
	return []engine.Resource{s.resource()}, nil
}

func (s *rowSource) Plan(_ context.Context, req engine.PlanRequest) (*engine.SourcePlan, error) {
	return &engine.SourcePlan{Resource: s.resource(), Consistency: engine.ConsistencyChunked, Rows: int64(len(s.rows)), Bytes: -1,
		Splits: []engine.Split{{ID: "0", Resource: req.Resource, Descriptor: json.RawMessage(`{}`)}}}, nil
}

func (s *rowSource) Read(ctx context.Context, req engine.ReadRequest, out engine.Writer) (engine.ReadResult, error) {
	s.reads++
	at := 0
	if len(req.From) > 0 {
		if err := json.Unmarshal(req.From, &at); err != nil {
			return engine.ReadResult{}, err
		}
	}
	for seq := uint64(0); at < len(s.rows); seq++ {
		end := min(at+100, len(s.rows))
		b := array.NewRecordBuilder(memory.DefaultAllocator, s.schema.Arrow())
		for _, r := range s.rows[at:end] {
			for i, v := range r {
				if v == null {
					b.Field(i).AppendNull()
				} else if err := rowtext.ParseText(b.Field(i), s.schema.Fields[i].Type, v); err != nil {
					return engine.ReadResult{}, err
				}
			}
		}
		rec := b.NewRecordBatch()
		b.Release()
		d, err := integrity.RecordDigest(&s.schema, rec)
		if err != nil {
			return engine.ReadResult{}, err
		}
		const size = 8 << 10
		if err := out.Reserve(ctx, size); err != nil {
			return engine.ReadResult{}, err
		}
		batch := &engine.Batch{Resource: s.name, Seq: seq, Rows: end - at, Bytes: size, Digest: d, CRC: integrity.RecordCRC(rec), Record: rec}
		if err := out.Write(ctx, batch); err != nil {
			return engine.ReadResult{}, err
		}
		at = end
		if err := out.Mark(ctx, json.RawMessage(fmt.Sprint(at))); err != nil {
			return engine.ReadResult{}, err
		}
	}
	return engine.ReadResult{Done: true}, nil
}
