package main

import (
	"context"
	"fmt"
)

// scenario is one way of replicating that is killed again and again.
type scenario struct {
	name     string
	pipeline func(*place) string
	// mutate changes the source between runs, as the write mode allows.
	mutate func(context.Context, *place) error
	// compare fails unless the destination equals the source, and counts rows.
	compare func(context.Context, *place) (int64, error)
}

// Small splits and epochs, so that a kill meets every step of the protocol often.
const settings = `settings: {slots: 2, memory: 64MiB, split_size: 2MiB, epoch_size: 512KiB, verify: %s%s}
`

func postgresPipeline(read, write, extra, verify, more string) func(*place) string {
	return func(p *place) string {
		return fmt.Sprintf(`version: 1
name: kill
source: {connector: postgres, url: "%s"}
sink: {connector: postgres, url: "%s"}
resources:
  - {name: public.items, read: %s, write: %s%s}
`, p.srcURL, p.dstURL, read, write, extra) + fmt.Sprintf(settings, verify, more)
	}
}

func filesPipeline(read, write, extra string) func(*place) string {
	return func(p *place) string {
		return fmt.Sprintf(`version: 1
name: kill
source: {connector: postgres, url: "%s"}
sink: {connector: files, path: out, format: parquet}
resources:
  - {name: public.items, read: %s, write: %s%s}
`, p.srcURL, read, write, extra) + fmt.Sprintf(settings, "digest", "")
	}
}

func scenarios() []scenario {
	return []scenario{
		{"pg-replace-chunked", postgresPipeline("full", "replace", "", "digest", ", consistency: chunked"), changeAll, comparePostgres},
		{"pg-replace-snapshot", postgresPipeline("full", "replace", "", "counts", ", consistency: snapshot"), changeAll, comparePostgres},
		{"pg-append", postgresPipeline("incremental", "append", ", cursor: updated_at", "counts", ""), addRows, comparePostgres},
		{"pg-upsert", postgresPipeline("incremental", "upsert", ", cursor: updated_at", "digest", ""), changeRows, comparePostgres},
		{"parquet-replace", filesPipeline("full", "replace", ""), changeAll, compareParquet},
		{"parquet-append", filesPipeline("incremental", "append", ", cursor: updated_at"), addRows, compareParquet},
	}
}

// addRows only adds: what append can carry.
func addRows(ctx context.Context, p *place) error {
	return p.insert(ctx, 2000+p.h.rng.IntN(p.h.rows/4))
}

// changeRows adds and updates, with fresh stamps: what upsert can carry.
func changeRows(ctx context.Context, p *place) error {
	if err := addRows(ctx, p); err != nil {
		return err
	}
	_, err := p.src.Exec(ctx, `UPDATE public.items SET note = 'changed ' || $1::text, amount = amount + 0.001, updated_at = clock_timestamp()
		WHERE id % 7 = $2::bigint % 7`, fmt.Sprint(p.h.rng.IntN(1<<30)), p.h.rng.Int64N(7))
	return err
}

// changeAll also deletes, and changes a row back and forth so that files move.
func changeAll(ctx context.Context, p *place) error {
	if err := changeRows(ctx, p); err != nil {
		return err
	}
	_, err := p.src.Exec(ctx, `DELETE FROM public.items WHERE id % 11 = $1::bigint % 11 AND id < $2`, p.h.rng.Int64N(11), p.next-int64(p.h.rows))
	return err
}
