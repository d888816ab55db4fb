package enginetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// Decoder turns the rows of a wire batch into canonical encoding.
type Decoder func(format engine.WireFormat, s *schema.Schema, b *engine.Batch) ([][]byte, error)

// collector is an [engine.Writer] that keeps rows, checks every batch at the
// source's edge, and stops where it is told to.
type collector struct {
	schema *schema.Schema
	wire   engine.WireFormat
	decode Decoder
	// budget bounds the bytes in flight, 0: none; slow is how long the sink
	// keeps a batch.
	budget int64
	slow   time.Duration
	// stopAt is the mark (from 1) at which ErrBoundary is answered; 0: never.
	stopAt int
	// changes: the batches have operations; they are kept beside the rows.
	changes   bool
	ops       []engine.Op
	unchanged [][]uint64

	mu      sync.Mutex
	held    int64
	sent    int64
	peak    int64
	freed   chan struct{}
	late    sync.WaitGroup
	pending [][]byte
	// rows are those before the last mark (or all, after done).
	rows    [][]byte
	skipped int
	seen    []engine.RowID
	batches int
	digest  integrity.Digest
	marks   []engine.Position
	stopped bool
	wrote   func()
}

var _ engine.Writer = (*collector)(nil)

func (c *collector) Reserve(ctx context.Context, n int64) error {
	for {
		c.mu.Lock()
		if c.freed == nil {
			c.freed = make(chan struct{})
		}
		if c.budget == 0 || c.held+c.sent+n <= c.budget || c.sent == 0 {
			c.held += n
			if c.held+c.sent <= c.budget {
				c.peak = max(c.peak, c.held+c.sent)
			}
			c.mu.Unlock()
			return nil
		}
		freed := c.freed
		c.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *collector) Unreserve(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held -= n
	c.wake()
}

func (c *collector) wake() {
	if c.freed != nil {
		close(c.freed)
	}
	c.freed = make(chan struct{})
}

func (c *collector) Write(ctx context.Context, b *engine.Batch) error {
	if err := ctx.Err(); err != nil {
		b.Release()
		return context.Cause(ctx)
	}
	err := c.take(b)
	c.mu.Lock()
	if c.held < b.Bytes {
		err = fmt.Errorf("batch %d has %d bytes, only %d are reserved", b.Seq, b.Bytes, c.held)
	}
	c.held -= b.Bytes
	c.sent += b.Bytes
	c.mu.Unlock()
	free := func() {
		n := b.Bytes
		b.Release()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent -= n
		c.wake()
	}
	if c.slow > 0 {
		c.late.Add(1)
		time.AfterFunc(c.slow, func() { defer c.late.Done(); free() })
	} else {
		free()
	}
	if c.wrote != nil {
		c.wrote()
	}
	return err
}

// take checks what a batch says of itself.
func (c *collector) take(b *engine.Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return fmt.Errorf("batch %d was written after the boundary", b.Seq)
	}
	if int(b.Seq) != c.batches {
		return fmt.Errorf("batch %d comes as number %d", b.Seq, c.batches)
	}
	c.batches++
	c.skipped += b.Skipped
	c.seen = append(c.seen, b.Seen...)
	if b.Rows == 0 {
		return nil
	}
	var rows [][]byte
	var crc uint32
	var err error
	if b.Record != nil {
		if c.wire != "" || !b.Record.Schema().Equal(c.schema.Arrow()) {
			return fmt.Errorf("batch %d: not in the asked form: wire format %q, columns %s", b.Seq, c.wire, b.Record.Schema())
		}
		crc = integrity.RecordCRC(b.Record)
		rows, err = CanonicalRows(c.schema, b.Record)
	} else {
		crc = integrity.CRC(0, b.Wire)
		rows, err = c.decode(c.wire, c.schema, b)
	}
	if err != nil {
		return fmt.Errorf("batch %d: %w", b.Seq, err)
	}
	if c.changes {
		if err := c.takeChanges(b); err != nil {
			return err
		}
	}
	switch {
	case c.changes != (b.Ops != nil):
		return fmt.Errorf("batch %d: changes have operations, rows have none", b.Seq)
	case len(rows) != b.Rows:
		return fmt.Errorf("batch %d says %d rows and has %d", b.Seq, b.Rows, len(rows))
	case crc != b.CRC:
		return fmt.Errorf("batch %d says CRC %08x and has %08x", b.Seq, b.CRC, crc)
	case DigestOf(rows) != b.Digest:
		return fmt.Errorf("batch %d says digest %s and has %s", b.Seq, b.Digest, DigestOf(rows))
	}
	c.digest.Add(b.Digest)
	c.pending = append(c.pending, rows...)
	return nil
}

// takeChanges checks and keeps what a batch says of its changes.
func (c *collector) takeChanges(b *engine.Batch) error {
	switch {
	case len(b.Ops) != b.Rows, len(b.Sequence) != b.Rows, b.Unchanged != nil && len(b.Unchanged) != b.Rows:
		return fmt.Errorf("batch %d: %d rows with %d operations, %d ordinals and %d masks", b.Seq, b.Rows, len(b.Ops), len(b.Sequence), len(b.Unchanged))
	case len(b.Commits) == 0 || b.Commits[0].Row != 0:
		return fmt.Errorf("batch %d: its first row belongs to no transaction", b.Seq)
	}
	c.ops = append(c.ops, b.Ops...)
	if b.Unchanged == nil {
		c.unchanged = append(c.unchanged, make([][]uint64, b.Rows)...)
	}
	for _, u := range b.Unchanged {
		c.unchanged = append(c.unchanged, append([]uint64(nil), u...))
	}
	return nil
}

// Keep is Mark: a collector stores every position.
func (c *collector) Keep(ctx context.Context, pos engine.Position) error { return c.Mark(ctx, pos) }

func (c *collector) Mark(_ context.Context, pos engine.Position) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marks = append(c.marks, append(engine.Position(nil), pos...))
	c.rows = append(c.rows, c.pending...)
	c.pending = nil
	if len(c.marks) == c.stopAt {
		c.stopped = true
		return engine.ErrBoundary
	}
	return nil
}

// done takes the rows after the last mark, when the split is at its end.
func (c *collector) done() {
	c.late.Wait()
	c.rows = append(c.rows, c.pending...)
	c.pending = nil
}
