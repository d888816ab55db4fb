package runner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// item is what a reader sends to the slot that applies: a batch, or the end of
// an epoch.
type item struct {
	batch *engine.Batch
	end   *cut
}

// cut ends an epoch at a mark.
type cut struct {
	pos engine.Position
	// done: the split ends here. last: the reader sends nothing after it.
	done, last bool
	// keep: the position is stored even if the epoch has no rows.
	keep bool
}

// bounds are the limits of an attempt; any of them ends reading at the next mark.
type bounds struct {
	mu       sync.Mutex
	deadline time.Time
	bytes    int64
	rows     int64
	stopped  bool
	reason   string
}

// take counts rows and bytes that were read.
func (b *bounds) take(rows, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows > 0 {
		if b.rows -= rows; b.rows <= 0 {
			b.stop("rows")
		}
	}
	if b.bytes > 0 {
		if b.bytes -= bytes; b.bytes <= 0 {
			b.stop("bytes")
		}
	}
}

func (b *bounds) stop(reason string) {
	if !b.stopped {
		b.stopped, b.reason = true, reason
	}
}

// Stop asks for the end of reading at the next mark.
func (b *bounds) Stop(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop(reason)
}

// reached tells whether reading must end at this mark, and why.
func (b *bounds) reached() (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped && !b.deadline.IsZero() && !time.Now().Before(b.deadline) {
		b.stop("deadline")
	}
	return b.reason, b.stopped
}

// late tells that the attempt's time is over, or that somebody waits for its end:
// what was read ahead is then left to the next attempt, since a slow destination
// could need longer for it than there is.
func (b *bounds) late() bool {
	reason, stopped := b.reached()
	return stopped && reason != "rows" && reason != "bytes"
}

// feed is the [engine.Writer] of one Read: it cuts the stream of batches into
// epochs at marks and hands both to the applying goroutine.
type feed struct {
	budget   *budget
	bounds   *bounds
	items    chan item
	progress *ResourceProgress

	epochBytes int64
	epochTime  time.Duration
	// members: the batches belong to several resources, which are summed apart.
	members bool

	// Since the last cut: bytes, rows (skipped ones included), when it was; in a
	// followed stream, when its first row came.
	bytes int64
	rows  int64
	since time.Time
}

var _ engine.Writer = (*feed)(nil)

func (f *feed) Reserve(ctx context.Context, n int64) error { return f.budget.reserve(ctx, n) }

func (f *feed) Unreserve(n int64) { f.budget.unreserve(n) }

func (f *feed) Write(ctx context.Context, b *engine.Batch) error {
	if (b.Record == nil) == (b.Wire == nil) && b.Rows > 0 {
		return engine.Bugf("source wrote a batch of %q with both or neither of columns and wire rows", b.Resource)
	}
	f.budget.handOver(b.Bytes)
	if f.rows == 0 && f.members {
		f.since = time.Now()
	}
	f.bytes += b.Bytes
	f.rows += int64(b.Rows + b.Skipped)
	f.bounds.take(int64(b.Rows), b.Bytes)
	f.progress.Read.Add(int64(b.Rows + b.Skipped))
	f.progress.ReadBytes.Add(b.Bytes)
	if err := f.send(ctx, item{batch: b}); err != nil {
		f.budget.release(b.Bytes)
		b.Release()
		return err
	}
	return nil
}

func (f *feed) Mark(ctx context.Context, pos engine.Position) error {
	_, stop := f.bounds.reached()
	if !stop && (f.rows == 0 || f.bytes < f.epochBytes && time.Since(f.since) < f.epochTime) {
		return nil
	}
	if err := f.send(ctx, item{end: &cut{pos: pos, last: stop}}); err != nil {
		return err
	}
	f.bytes, f.rows, f.since = 0, 0, time.Now()
	if stop {
		return engine.ErrBoundary
	}
	return nil
}

// Keep cuts an epoch that is wanted for its position, with or without rows.
func (f *feed) Keep(ctx context.Context, pos engine.Position) error {
	_, stop := f.bounds.reached()
	if err := f.send(ctx, item{end: &cut{pos: pos, last: stop, keep: true}}); err != nil {
		return err
	}
	f.bytes, f.rows, f.since = 0, 0, time.Now()
	if stop {
		return engine.ErrBoundary
	}
	return nil
}

func (f *feed) send(ctx context.Context, it item) error {
	select {
	case f.items <- it:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reader runs one Read in a goroutine and presents its stream as epochs.
type reader struct {
	feed   *feed
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error

	// The open batch, returned to the pool at the following Next.
	open *engine.Batch
	end  engine.EpochEnd
	last bool
	seen []engine.RowID
	// replan is [engine.ReadResult.Replan], valid after the last item.
	replan string
}

// pass is how a change stream's split is read: up to where its source is, once.
type pass struct {
	// ends: the split is done when the pass has caught up. next: it is, when the
	// structure has changed there.
	ends, next bool
}

var errAbandoned = errors.New("the read was abandoned")

// startRead begins to read a split from a position; p is nil for a table's.
func startRead(ctx context.Context, src engine.SourceSession, req engine.ReadRequest, f *feed, p *pass) *reader {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &reader{feed: f, cancel: cancel, done: make(chan struct{})}
	f.since = time.Now()
	go func() {
		defer close(r.done)
		res, err := src.Read(ctx, req, f)
		switch {
		case err != nil:
			r.err = err
		case res.Done:
			r.replan = res.Replan
			done := p == nil || p.ends || p.next && res.Replan != ""
			r.err = f.send(ctx, item{end: &cut{pos: res.End, done: done, last: true, keep: true}})
		default:
			if _, stopped := f.bounds.reached(); !stopped {
				r.err = engine.Bugf("read of split %q ended early without being asked to", req.Split.ID)
			}
		}
		close(f.items)
	}()
	return r
}

// begin waits for the first item of the next epoch; false at the end of the read.
func (r *reader) begin(ctx context.Context) (item, bool, error) {
	if r.last {
		return item{}, false, nil
	}
	select {
	case it, ok := <-r.feed.items:
		if !ok {
			if r.err != nil {
				return item{}, false, r.err
			}
			return item{}, false, nil
		}
		return it, true, nil
	case <-ctx.Done():
		return item{}, false, context.Cause(ctx)
	}
}

// epoch makes the next epoch of the first item; the caller fills in the fence.
func (r *reader) epoch(first item) *engine.Epoch {
	r.end = engine.EpochEnd{}
	r.seen = nil
	pending := &first
	ended := false
	next := func(ctx context.Context) (*engine.Batch, error) {
		r.releaseOpen()
		if ended {
			return nil, io.EOF
		}
		for {
			var it item
			if pending != nil {
				it, pending = *pending, nil
			} else {
				select {
				case got, ok := <-r.feed.items:
					if !ok {
						if r.err != nil {
							return nil, r.err
						}
						return nil, engine.Bugf("read ended inside an epoch")
					}
					it = got
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			}
			if it.end != nil {
				ended = true
				r.last = it.end.last
				r.end.Position, r.end.Done = it.end.pos, it.end.done
				return nil, io.EOF
			}
			b := it.batch
			r.open = b
			r.end.Rows += int64(b.Rows)
			r.end.Skipped += int64(b.Skipped)
			r.end.Policies = append(r.end.Policies, b.Policies...)
			r.end.Bytes += b.Bytes
			r.end.Digest.Add(b.Digest)
			if r.feed.members {
				r.addMember(b)
			}
			if b.Rows > 0 {
				r.end.CRC = ChainCRC(r.end.CRC, b.CRC)
			}
			r.seen = append(r.seen, b.Seen...)
			if b.Rows == 0 {
				r.releaseOpen()
				continue
			}
			return b, nil
		}
	}
	return &engine.Epoch{Next: next, End: func() engine.EpochEnd { return r.end }}
}

func (r *reader) releaseOpen() {
	if r.open != nil {
		n := r.open.Bytes
		r.open.Release()
		r.open = nil
		r.feed.budget.release(n)
	}
}

// close ends the read, waits for its goroutine and frees what is on the way.
func (r *reader) close() {
	r.cancel(errAbandoned)
	for it := range r.feed.items {
		if it.batch != nil {
			n := it.batch.Bytes
			it.batch.Release()
			r.feed.budget.release(n)
		}
	}
	<-r.done
	r.releaseOpen()
}

// ChainCRC adds a batch's CRC to an epoch's: the CRC32C over the batches' CRCs
// as big-endian bytes, in order. Sinks chain theirs in the same way.
func ChainCRC(crc, batch uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], batch)
	return integrity.CRC(crc, b[:])
}

// addMember counts a batch with its resource's part of the epoch.
func (r *reader) addMember(b *engine.Batch) {
	if r.end.Members == nil {
		r.end.Members = map[string]engine.Totals{}
	}
	t := r.end.Members[b.Resource]
	t.Read += int64(b.Rows + b.Skipped)
	t.Skipped += int64(b.Skipped)
	t.Bytes += b.Bytes
	t.Digest.Add(b.Digest)
	t.AddPolicies(b.Policies)
	r.end.Members[b.Resource] = t
}

// checkReceipt compares what the sink says of an epoch with what was read (P6, invariant 7).
func checkReceipt(resource, split string, end engine.EpochEnd, rc *engine.Receipt) error {
	if rc.CRC != end.CRC {
		return &engine.MismatchError{Resource: resource, Split: split, What: "crc",
			Source: fmt.Sprintf("%08x", end.CRC), Destination: fmt.Sprintf("%08x", rc.CRC)}
	}
	if got := rc.Applied + rc.Superseded + rc.Skipped + rc.SetAside; got != end.Rows {
		return &engine.MismatchError{Resource: resource, Split: split, What: "rows",
			Source: fmt.Sprint(end.Rows), Destination: fmt.Sprintf("%d applied + %d superseded + %d skipped + %d set aside",
				rc.Applied, rc.Superseded, rc.Skipped, rc.SetAside)}
	}
	return checkMembers(split, end, rc)
}

// checkMembers holds invariant 7 for each member of a change stream.
func checkMembers(split string, end engine.EpochEnd, rc *engine.Receipt) error {
	for name := range rc.Members {
		if _, ok := end.Members[name]; !ok {
			return engine.Bugf("epoch of split %s: the sink counts rows of %s, of which none was read", split, name)
		}
	}
	for name, want := range end.Members {
		have := rc.Members[name]
		if got := have.Applied + have.Superseded + have.Skipped + have.SetAside; got != want.Read-want.Skipped {
			return &engine.MismatchError{Resource: name, Split: split, What: "rows", Source: fmt.Sprint(want.Read - want.Skipped),
				Destination: fmt.Sprintf("%d applied + %d superseded + %d skipped + %d set aside", have.Applied, have.Superseded, have.Skipped, have.SetAside)}
		}
	}
	return nil
}

// memberSteps are the parts of an epoch's sums by resource.
func memberSteps(end engine.EpochEnd, rc *engine.Receipt) map[string]engine.Totals {
	var out map[string]engine.Totals
	for name, t := range end.Members {
		if out == nil {
			out = make(map[string]engine.Totals, len(end.Members))
		}
		t.Add(rc.Members[name])
		out[name] = t
	}
	return out
}
