// Package stdout is a sink that prints rows as JSON, one a line, for trying
// things out. What is printed can't be taken back: its guarantee is
// at-least-once, and rows of an attempt that failed may be printed again.
package stdout

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/rowtext"
	"github.com/tranship-io/tranship/engine/schema"
)

// Name is the connector's name in pipeline files.
const Name = "stdout"

// Config is the connector's configuration.
type Config struct {
	// Resource adds a member "_resource" with the resource's name to each line.
	Resource bool `json:"resource,omitempty" jsonschema:"description=Add a member _resource with the resource's name"`
}

// Sink is the stdout sink.
type Sink struct{ out io.Writer }

var _ engine.Sink = (*Sink)(nil)

// NewSink makes the sink; it writes to out, or to standard output if out is nil.
func NewSink(out io.Writer) *Sink {
	if out == nil {
		out = os.Stdout
	}
	return &Sink{out: out}
}

// Spec implements engine.Sink.
func (*Sink) Spec() engine.Spec {
	return engine.Spec{
		Name:     Name,
		Title:    "Standard output",
		Summary:  "Prints rows as JSON lines, for trying out.",
		Config:   &Config{},
		Writes:   []engine.WriteMode{engine.WriteAppend},
		Delivery: "at-least-once",
		Notes: []string{
			"Rows of an attempt that failed may be printed again; nothing is read back, so verify: digest is refused.",
			"NaN, infinities and invalid text are printed as strings: nothing is refused.",
		},
	}
}

// Open implements engine.Sink.
func (s *Sink) Open(_ context.Context, cfg engine.Config, _ engine.OpenOptions) (engine.SinkSession, error) {
	var c Config
	dec := json.NewDecoder(bytes.NewReader(cfg))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return nil, engine.Permanentf("", "read the stdout sink's configuration: %w", err)
	}
	return &session{cfg: c, out: s.out}, nil
}

// session prints; the lock keeps lines of parallel splits whole.
type session struct {
	cfg Config
	mu  sync.Mutex
	out io.Writer
}

var _ engine.SinkSession = (*session)(nil)

// Identity implements engine.SinkSession.
func (*session) Identity() string { return "stdout:" }

// Plan implements engine.SinkSession.
func (*session) Plan(_ context.Context, req engine.TargetRequest) (*engine.Target, error) {
	r := req.Plan.Resource
	if req.Write != engine.WriteAppend {
		return nil, engine.Permanentf("choose write: append", "%s: standard output can't be written with mode %s", r.Name, req.Write)
	}
	if req.Verify == engine.VerifyDigest {
		return nil, engine.Permanentf("choose verify: counts", "%s: what was printed can't be read back", r.Name)
	}
	t := &engine.Target{
		Route: req.Route, RunID: req.RunID, Ordinal: req.Ordinal, Generation: req.Generation,
		Resource: r.Name, Schema: r.Schema, Name: "stdout", Read: req.Read, Write: req.Write,
		Technique: "printed line by line", Verify: req.Verify, Policies: req.Policies,
		SchemaRule: req.Schema, Window: req.Plan.Window, RememberWindow: req.Read == engine.ReadIncremental,
	}
	for _, f := range r.Schema.Fields {
		t.Columns = append(t.Columns, engine.TargetColumn{Source: f.Name, Name: f.Name, Type: f.Type.String()})
	}
	return t, nil
}

// Prepare implements engine.SinkSession; there is nothing to do.
func (*session) Prepare(context.Context, *engine.Target) (*engine.Prepared, error) {
	return &engine.Prepared{}, nil
}

// Apply implements engine.SinkSession.
func (s *session) Apply(ctx context.Context, e *engine.Epoch) (*engine.Receipt, error) {
	r := &engine.Receipt{}
	for {
		b, err := e.Next(ctx)
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		t := e.Targets[b.Resource]
		if t == nil || b.Record == nil {
			return nil, engine.Bugf("split %s: a batch of %q has no target or no columns", e.Split, b.Resource)
		}
		crc := integrity.RecordCRC(b.Record)
		if crc != b.CRC {
			return nil, &engine.MismatchError{
				Resource: b.Resource, Split: e.Split, What: "crc",
				Source: fmt.Sprintf("%08x", b.CRC), Destination: fmt.Sprintf("%08x", crc),
			}
		}
		r.CRC = integrity.CRC(r.CRC, binary.BigEndian.AppendUint32(nil, crc))
		n, err := s.print(t, b)
		if err != nil {
			return nil, err
		}
		r.Applied += int64(b.Rows)
		r.Bytes += n
	}
}

// print writes a batch's rows.
func (s *session) print(t *engine.Target, b *engine.Batch) (int64, error) {
	cells := make([]rowtext.Cell, len(t.Schema.Fields))
	for i, f := range t.Schema.Fields {
		var err error
		if cells[i], err = cellOf(f.Type, b.Record.Column(i)); err != nil {
			return 0, engine.Bugf("%s column %q: %w", t.Resource, f.Name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := bufio.NewWriter(s.out)
	var line []byte
	var n int64
	for row := range b.Rows {
		line = append(line[:0], '{')
		if s.cfg.Resource {
			line = rowtext.AppendString(append(line, `"_resource":`...), t.Resource)
		}
		for i, f := range t.Schema.Fields {
			if len(line) > 1 {
				line = append(line, ',')
			}
			line = append(rowtext.AppendString(line, f.Name), ':')
			if b.Record.Column(i).IsNull(row) {
				line = append(line, "null"...)
			} else {
				line = cells[i](line, row)
			}
		}
		line = append(line, '}', '\n')
		n += int64(len(line))
		if _, err := out.Write(line); err != nil {
			return n, engine.Permanentf("", "print %s: %w", t.Resource, err)
		}
	}
	if err := out.Flush(); err != nil {
		return n, engine.Permanentf("", "print %s: %w", t.Resource, err)
	}
	return n, nil
}

// cellOf prints text that is no JSON where JSON belongs as a string.
func cellOf(t schema.Type, arr arrow.Array) (rowtext.Cell, error) {
	write, err := rowtext.JSON(t, arr)
	if err != nil {
		return nil, err
	}
	text, err := rowtext.Text(t, arr)
	if err != nil {
		return nil, err
	}
	return func(dst []byte, i int) []byte {
		from := len(dst)
		dst = write(dst, i)
		if json.Valid(dst[from:]) {
			return dst
		}
		return rowtext.AppendString(dst[:from], string(bytes.ToValidUTF8(text(nil, i), []byte("\ufffd"))))
	}, nil
}

// Publish implements engine.SinkSession; what was printed is visible already.
func (*session) Publish(_ context.Context, p *engine.Publication) (*engine.Receipt, error) {
	return &engine.Receipt{Applied: p.Totals.Applied}, nil
}

// Abort implements engine.SinkSession; what was printed stays.
func (*session) Abort(context.Context, *engine.Target) error { return nil }

// Close implements engine.SinkSession.
func (*session) Close(context.Context) error { return nil }
