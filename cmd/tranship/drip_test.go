package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// drip is a source whose rows come as slowly as a test wants, and that fails
// where a test wants.
type drip struct{}

type dripConfig struct {
	URL      string `json:"url,omitempty" secret:"true"`
	Password string `json:"password,omitempty" secret:"true"`
	Rows     int    `json:"rows,omitempty"`
	// DelayMS is the wait before each batch of ten rows.
	DelayMS int `json:"delay_ms,omitempty"`
	// FailAt is the row at which reading fails for good; 0 means never.
	FailAt int `json:"fail_at,omitempty"`
	// WaitMS is the wait before Open answers.
	WaitMS int `json:"wait_ms,omitempty"`
	// Refuse makes Open fail: "password" permanently, "network" retryably.
	Refuse string `json:"refuse,omitempty" jsonschema:"enum=password,enum=network"`
}

func (drip) Spec() engine.Spec {
	return engine.Spec{
		Name: "drip", Title: "Drip", Summary: "Numbers, slowly", Config: &dripConfig{},
		Reads: []engine.ReadMode{engine.ReadFull, engine.ReadIncremental}, Consistencies: []engine.Consistency{engine.ConsistencyChunked},
	}
}

func (drip) Open(ctx context.Context, cfg engine.Config, _ engine.OpenOptions) (engine.SourceSession, error) {
	s := &dripSession{}
	if err := json.Unmarshal(cfg, &s.cfg); err != nil {
		return nil, engine.Permanentf("", "read configuration: %w", err)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Duration(s.cfg.WaitMS) * time.Millisecond):
	}
	switch s.cfg.Refuse {
	case "password":
		// A careless connector: the command must not pass this on.
		return nil, engine.Permanentf("check the password", "login as %s with %q was refused", s.cfg.URL, s.cfg.Password)
	case "network":
		return nil, engine.Retryablef("nobody answers")
	}
	return s, nil
}

type dripSession struct{ cfg dripConfig }

var dripSchema = schema.Schema{
	Fields: []schema.Field{{Name: "id", Type: schema.Type{Kind: schema.Int64}}, {Name: "note", Type: schema.Type{Kind: schema.String}, Nullable: true}},
	Key:    []string{"id"},
}

func (s *dripSession) resources() []engine.Resource {
	var out []engine.Resource
	for _, name := range []string{"numbers", "others"} {
		out = append(out, engine.Resource{Name: "main." + name, Path: []string{"main", name}, Kind: "table", Schema: dripSchema, Rows: int64(s.cfg.Rows), Bytes: -1})
	}
	return out
}

func (s *dripSession) Identity() string { return "drip" }

func (s *dripSession) Discover(_ context.Context, patterns []string) ([]engine.Resource, error) {
	var out []engine.Resource
	for _, r := range s.resources() {
		ok := len(patterns) == 0
		for _, p := range patterns {
			match, err := path.Match(p, r.Name)
			ok = ok || match && err == nil
		}
		if ok {
			out = append(out, r)
		}
	}
	return out, nil
}

func (s *dripSession) TestConnection(context.Context) ([]engine.Finding, error) {
	return []engine.Finding{{Level: "warning", Subject: "speed", Message: "it is slow", Hint: "wait"}}, nil
}

func (s *dripSession) RankCursors(context.Context, string) ([]engine.CursorChoice, error) {
	return []engine.CursorChoice{{Column: "id", Type: "int64", Eligible: true, Score: 1, Reason: "it grows"}}, nil
}

func (s *dripSession) Plan(_ context.Context, req engine.PlanRequest) (*engine.SourcePlan, error) {
	for _, r := range s.resources() {
		if r.Name != req.Resource {
			continue
		}
		return &engine.SourcePlan{
			Resource: r, Consistency: engine.ConsistencyChunked, Rows: r.Rows, Bytes: -1, Coverage: "all numbers",
			Splits:     []engine.Split{{ID: "all", Resource: r.Name, Descriptor: json.RawMessage(`{}`), Rows: r.Rows, Bytes: -1}},
			NextCursor: json.RawMessage(fmt.Sprint(s.cfg.Rows)),
		}, nil
	}
	return nil, engine.Permanentf("", "there is no %s", req.Resource)
}

func (s *dripSession) Read(ctx context.Context, req engine.ReadRequest, out engine.Writer) (engine.ReadResult, error) {
	var from int
	if len(req.From) > 0 {
		if err := json.Unmarshal(req.From, &from); err != nil {
			return engine.ReadResult{}, engine.Bugf("read position: %w", err)
		}
	}
	for seq := uint64(0); from < s.cfg.Rows; seq++ {
		select {
		case <-ctx.Done():
			return engine.ReadResult{}, ctx.Err()
		case <-time.After(time.Duration(s.cfg.DelayMS) * time.Millisecond):
		}
		to := min(from+10, s.cfg.Rows)
		if at := s.cfg.FailAt; at > from && at <= to {
			return engine.ReadResult{}, engine.Permanentf("mend it", "row %d cannot be read", at)
		}
		b := array.NewRecordBuilder(memory.NewGoAllocator(), dripSchema.Arrow())
		for i := from; i < to; i++ {
			b.Field(0).(*array.Int64Builder).Append(int64(i))
			b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("note %d", i))
		}
		rec := b.NewRecordBatch()
		digest, err := integrity.RecordDigest(&dripSchema, rec)
		if err != nil {
			return engine.ReadResult{}, err
		}
		const bytes = 1000
		if err := out.Reserve(ctx, bytes); err != nil {
			return engine.ReadResult{}, err
		}
		if err := out.Write(ctx, &engine.Batch{
			Resource: req.Split.Resource, Seq: seq, Rows: to - from, Bytes: bytes, Digest: digest, CRC: integrity.RecordCRC(rec), Record: rec,
		}); err != nil {
			return engine.ReadResult{}, err
		}
		from = to
		if err := out.Mark(ctx, json.RawMessage(fmt.Sprint(from))); err != nil {
			if errors.Is(err, engine.ErrBoundary) {
				return engine.ReadResult{}, nil
			}
			return engine.ReadResult{}, err
		}
	}
	return engine.ReadResult{Done: true}, nil
}

func (s *dripSession) Close(context.Context) error { return nil }
