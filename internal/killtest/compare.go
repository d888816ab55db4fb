package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/jackc/pgx/v5"
)

// comparePostgres compares every column of every row as the servers print it.
func comparePostgres(ctx context.Context, p *place) (int64, error) {
	const q = `COPY (SELECT id, grp, name, note, amount, free, ratio, flag, tags, doc, at, day, raw, updated_at FROM public.items ORDER BY id) TO STDOUT`
	return compareStreams(func(w io.Writer) error { return copyOut(ctx, p.src, q, w) }, func(w io.Writer) error { return copyOut(ctx, p.dst, q, w) })
}

func copyOut(ctx context.Context, c *pgx.Conn, q string, w io.Writer) error {
	if _, err := c.Exec(ctx, "SET TimeZone = 'UTC'"); err != nil {
		return err
	}
	_, err := c.PgConn().CopyTo(ctx, w, q)
	return err
}

// compareStreams compares two line streams of equal order.
func compareStreams(a, b func(io.Writer) error) (int64, error) {
	ra, ea := stream(a)
	rb, eb := stream(b)
	defer func() { _ = ra.Close(); _ = rb.Close() }()
	sa, sb := bufio.NewReaderSize(ra, 1<<20), bufio.NewReaderSize(rb, 1<<20)
	var n int64
	for {
		la, errA := sa.ReadBytes('\n')
		lb, errB := sb.ReadBytes('\n')
		if errA != nil || errB != nil {
			if errA == io.EOF && errB == io.EOF {
				break
			}
			if errA != nil && errA != io.EOF || errB != nil && errB != io.EOF {
				return n, fmt.Errorf("read rows: %w", errors.Join(errA, errB))
			}
		}
		if !bytes.Equal(la, lb) {
			return n, fmt.Errorf("row %d differs:\nsource      %s\ndestination %s", n+1, strings.TrimSpace(string(la)), strings.TrimSpace(string(lb)))
		}
		n++
	}
	if err := <-ea; err != nil {
		return n, err
	}
	return n, <-eb
}

func stream(f func(io.Writer) error) (*io.PipeReader, chan error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := f(w)
		_ = w.CloseWithError(err)
		done <- err
	}()
	return r, done
}

// compareParquet compares what the manifest publishes with the source, column
// by column in one printed form.
func compareParquet(ctx context.Context, p *place) (int64, error) {
	dir := filepath.Join(p.dir, "out", "public.items")
	lines, err := parquetLines(ctx, dir)
	if err != nil {
		return 0, err
	}
	slices.SortFunc(lines, func(a, b line) int {
		switch {
		case a.id < b.id:
			return -1
		case a.id > b.id:
			return 1
		}
		return strings.Compare(a.text, b.text)
	})
	const q = `COPY (SELECT id || '|' || grp || '|' || name || '|' || coalesce(note, '~') || '|' || amount || '|' || free || '|' ||
		CASE WHEN flag THEN 'true' ELSE 'false' END || '|' || (extract(epoch FROM at) * 1000000)::bigint || '|' || (day - date '1970-01-01') || '|' || encode(raw, 'hex') || '|' ||
		(extract(epoch FROM updated_at) * 1000000)::bigint FROM public.items ORDER BY id) TO STDOUT`
	return compareStreams(func(w io.Writer) error { return copyOut(ctx, p.src, q, w) }, func(w io.Writer) error {
		for _, l := range lines {
			if _, err := io.WriteString(w, l.text+"\n"); err != nil {
				return err
			}
		}
		return nil
	})
}

type line struct {
	id   int64
	text string
}

// parquetLines reads the files of the manifest, and fails if there are others.
func parquetLines(ctx context.Context, dir string) ([]line, error) {
	body, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		return nil, err
	}
	var manifest struct {
		Files []struct {
			Name string `json:"name"`
			Rows int64  `json:"rows"`
		} `json:"files"`
	}
	if err := json.Unmarshal(body, &manifest); err != nil {
		return nil, err
	}
	listed := map[string]bool{}
	var out []line
	for _, f := range manifest.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		listed[path] = true
		before := len(out)
		if out, err = appendParquet(ctx, path, out); err != nil {
			return nil, fmt.Errorf("read %s: %w", f.Name, err)
		}
		if got := int64(len(out) - before); got != f.Rows {
			return nil, fmt.Errorf("%s has %d rows, the manifest says %d", f.Name, got, f.Rows)
		}
	}
	err = filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		if err == nil && strings.HasSuffix(path, ".parquet") && !listed[path] {
			err = fmt.Errorf("%s is not in the manifest", path)
		}
		return err
	})
	return out, err
}

func appendParquet(ctx context.Context, path string, out []line) ([]line, error) {
	pf, err := file.OpenParquetFile(path, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = pf.Close() }()
	fr, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: 8192}, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	tbl, err := fr.ReadTable(ctx)
	if err != nil {
		return nil, err
	}
	defer tbl.Release()
	tr := array.NewTableReader(tbl, 8192)
	defer tr.Release()
	for tr.Next() {
		rec := tr.RecordBatch()
		col := func(name string) arrow.Array { return rec.Column(rec.Schema().FieldIndices(name)[0]) }
		id := col("id").(*array.Int64)
		at, upd := col("at").(*array.Timestamp), col("updated_at").(*array.Timestamp)
		amount := col("amount").(*array.Decimal128)
		day, raw, note := col("day").(*array.Date32), col("raw").(*array.Binary), col("note")
		for i := range int(rec.NumRows()) {
			n := "~"
			if note.IsValid(i) {
				n = note.ValueStr(i)
			}
			out = append(out, line{id.Value(i), fmt.Sprintf("%d|%s|%s|%s|%s|%s|%s|%d|%d|%x|%d", id.Value(i), col("grp").ValueStr(i), col("name").ValueStr(i), n,
				amount.Value(i).ToString(3), col("free").ValueStr(i), col("flag").ValueStr(i), int64(at.Value(i)), int32(day.Value(i)), raw.Value(i), int64(upd.Value(i)))})
		}
	}
	return out, tr.Err()
}
