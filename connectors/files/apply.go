package files

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/zeebo/xxh3"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// writeBuffer collects small writes to a file.
const writeBuffer = 256 << 10

// epochWriter writes one epoch's rows into one or more files.
type epochWriter struct {
	s      *session
	e      *engine.Epoch
	t      *engine.Target
	d      *detail
	cols   []column
	fit    *fitter
	hasher *integrity.Hasher
	mem    memory.Allocator
	loaded time.Time

	file    *openFile
	parts   int
	crc     uint32
	receipt engine.Receipt
}

// openFile is a file being written.
type openFile struct {
	staged *os.File
	buf    *bufio.Writer
	sum    *summing
	enc    encoder
	rows   int64
	raw    int64
	// digest is what reading the file back must give (P9).
	digest integrity.Digest
}

// summing counts, checksums and hashes the bytes that go to a staged file.
type summing struct {
	w    *os.File
	n    int64
	crc  uint32
	hash *xxh3.Hasher
}

func (s *summing) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.n += int64(n)
	s.crc = integrity.CRC(s.crc, p[:n])
	_, _ = s.hash.Write(p[:n]) // never fails
	if err != nil {
		return n, localError("write file", err)
	}
	return n, nil
}

// Apply implements engine.SinkSession: the epoch becomes durable files, which
// nobody sees before they are published. Nothing registered means nothing
// applied: a failed Apply leaves at most files that a sweep removes.
func (s *session) Apply(ctx context.Context, e *engine.Epoch) (*engine.Receipt, error) {
	if len(e.Targets) != 1 {
		return nil, engine.Bugf("split %s: an epoch of files has %d targets, not 1", e.Split, len(e.Targets))
	}
	w := &epochWriter{s: s, e: e, mem: memory.DefaultAllocator, loaded: time.Now().UTC()}
	for _, w.t = range e.Targets {
	}
	var err error
	if w.d, err = detailOf(w.t); err != nil {
		return nil, err
	}
	if w.cols, err = planColumns(w.t, w.d); err != nil {
		return nil, err
	}
	w.fit = &fitter{format: w.d.Format, resource: w.t.Resource, target: w.t, columns: w.cols, mem: w.mem}
	w.hasher = integrity.NewHasher(&w.t.Schema)
	defer w.discard()
	for {
		b, err := e.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := w.batch(ctx, b); err != nil {
			return nil, err
		}
	}
	if err := w.finishFile(ctx); err != nil {
		return nil, err
	}
	return w.end()
}

// end checks the epoch's sums (invariant 7) and completes the receipt.
func (w *epochWriter) end() (*engine.Receipt, error) {
	end := w.e.End()
	r := &w.receipt
	r.SetAside, r.SetAsideRows, r.Policies = w.fit.aside, w.fit.setAside, w.fit.counts.Policies
	r.CRC = w.crc
	r.Verified = w.t.Verify == engine.VerifyDigest
	if r.Applied+r.SetAside != end.Rows {
		return nil, &engine.MismatchError{
			Resource: w.t.Resource, Split: w.e.Split, What: "rows",
			Source: fmt.Sprint(end.Rows), Destination: fmt.Sprint(r.Applied + r.SetAside),
		}
	}
	return r, nil
}

// batch writes one batch, after checking that it is what the source handed over.
func (w *epochWriter) batch(ctx context.Context, b *engine.Batch) error {
	if b.Record == nil {
		return engine.Bugf("%s: files are written from columns, the batch has none", w.t.Resource)
	}
	for _, op := range b.Ops {
		if op != engine.OpInsert {
			return engine.Permanentf("write it to a database, or read the table in mode full or incremental",
				"%s: files take only inserted rows, the source sends changes", w.t.Resource)
		}
	}
	crc := integrity.RecordCRC(b.Record)
	if crc != b.CRC {
		return &engine.MismatchError{
			Resource: w.t.Resource, Split: w.e.Split, What: "crc",
			Source: fmt.Sprintf("%08x", b.CRC), Destination: fmt.Sprintf("%08x", crc),
		}
	}
	w.crc = integrity.CRC(w.crc, binary.BigEndian.AppendUint32(nil, crc))
	if err := checkRecord(w.t.Resource, &w.t.Schema, b.Record); err != nil {
		return err
	}
	if b.Rows == 0 {
		return nil
	}
	rec, altered, err := w.fit.fit(b.Record)
	if err != nil {
		return err
	}
	defer rec.Release()
	digest := b.Digest
	if altered {
		// P9: a file's digest is taken after the policies. What they changed or kept
		// out counts in the read-back as it was read, see [engine.Receipt].
		if digest, err = w.hasher.Rows(rec, 0, int(rec.NumRows())); err != nil {
			return engine.Bugf("%s: %w", w.t.Resource, err)
		}
		if w.t.Verify == engine.VerifyDigest {
			w.receipt.ReadBack.Add(b.Digest)
			w.receipt.ReadBack.Sub(digest)
		}
	}
	if rec.NumRows() == 0 {
		return nil
	}
	if w.t.Lineage {
		full := w.withLineage(rec)
		defer full.Release()
		rec = full
	}
	if w.file != nil && !w.file.enc.accepts(rec) {
		if err := w.finishFile(ctx); err != nil {
			return err
		}
	}
	if w.file == nil {
		if err := w.openFile(); err != nil {
			return err
		}
	}
	f := w.file
	if err := f.enc.write(rec, b.Bytes); err != nil {
		return fmt.Errorf("write %s: %w", w.t.Name, err)
	}
	f.rows += rec.NumRows()
	f.raw += b.Bytes
	f.digest.Add(digest)
	if f.enc.size() >= w.d.Roll {
		return w.finishFile(ctx)
	}
	return nil
}

// withLineage appends the lineage columns.
func (w *epochWriter) withLineage(rec arrow.RecordBatch) arrow.RecordBatch {
	n := int(rec.NumRows())
	run := array.NewStringBuilder(w.mem)
	defer run.Release()
	at := array.NewTimestampBuilder(w.mem, &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"})
	defer at.Release()
	for range n {
		run.Append(w.t.RunID)
		at.Append(arrow.Timestamp(w.loaded.UnixMicro()))
	}
	runs, times := run.NewArray(), at.NewArray()
	defer runs.Release()
	defer times.Release()
	fields := append([]arrow.Field{}, rec.Schema().Fields()...)
	fields = append(fields, arrow.Field{Name: lineageRun, Type: runs.DataType()}, arrow.Field{Name: lineageTime, Type: times.DataType()})
	cols := append(append([]arrow.Array{}, rec.Columns()...), runs, times)
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, int64(n))
}

func (w *epochWriter) splitFolder() string {
	return runDir(w.t.RunID, w.t.Generation) + "/" + splitDir(w.t.Resource, w.e.Split)
}

func (w *epochWriter) openFile() error {
	staged, err := w.s.store.stage(w.d.Folder + "/" + w.splitFolder())
	if err != nil {
		return err
	}
	sum := &summing{w: staged, hash: xxh3.NewSeed(uint64(w.parts))}
	w.parts++
	buf := bufio.NewWriterSize(sum, writeBuffer)
	enc, err := newEncoder(buf, w.d, w.cols, w.mem)
	if err != nil {
		discard(staged)
		return err
	}
	w.file = &openFile{staged: staged, buf: buf, sum: sum, enc: enc}
	return nil
}

// finishFile makes the open file durable under its name, reads it back if the
// run verifies, and registers it in the receipt.
func (w *epochWriter) finishFile(ctx context.Context) error {
	f := w.file
	if f == nil {
		return nil
	}
	w.file = nil
	staged := f.staged
	defer func() { discard(staged) }()
	if err := f.enc.finish(); err != nil {
		return fmt.Errorf("write %s: %w", w.t.Name, err)
	}
	if err := f.buf.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", w.t.Name, err)
	}
	name := w.splitFolder() + "/" + fileName(w.e.Number, w.e.Claim, f.sum.hash.Sum128(), extension(w.d.Format, w.d.Compression))
	key := w.d.Folder + "/" + name
	put := staged
	staged = nil // put owns it from here on
	if err := w.s.store.put(ctx, put, object{key: key, size: f.sum.n, crc32c: f.sum.crc}); err != nil {
		return fmt.Errorf("write %s: %w", w.t.Name, err)
	}
	if w.t.Verify == engine.VerifyDigest {
		got, rows, err := w.s.readBack(ctx, w.t, w.d, w.cols, key, f)
		if err != nil {
			return err
		}
		if rows != f.rows {
			return &engine.MismatchError{
				Resource: w.t.Resource, Split: w.e.Split, What: "rows",
				Source: fmt.Sprint(f.rows), Destination: fmt.Sprint(rows),
			}
		}
		if got != f.digest {
			return &engine.MismatchError{
				Resource: w.t.Resource, Split: w.e.Split, What: "digest",
				Source: f.digest.String(), Destination: got.String(),
			}
		}
		w.receipt.ReadBack.Add(got)
	}
	w.receipt.Applied += f.rows
	w.receipt.Bytes += f.sum.n
	w.receipt.Artifacts = append(w.receipt.Artifacts, engine.Artifact{
		Name: name, Split: w.e.Split, Epoch: w.e.Number, Claim: w.e.Claim,
		Rows: f.rows, Bytes: f.sum.n, Digest: f.digest,
		Checksum: fmt.Sprintf("crc32c:%08x", f.sum.crc),
	})
	return nil
}

// discard drops a file that was not finished.
func (w *epochWriter) discard() {
	if w.file != nil {
		discard(w.file.staged)
		w.file = nil
	}
}
