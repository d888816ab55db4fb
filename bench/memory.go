package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// memory measures the resident set against the table's size, and one row of 50 MB.
func (b *bench) memory(ctx context.Context, big int) error {
	fmt.Printf("\n### Memory\n\n| job | RSS MiB | wall s |\n|---|---|---|\n")
	small := 2_000_000
	for _, t := range []struct {
		name string
		rows int
	}{{"public.small", small}, {"public.big", big}} {
		if err := b.table(ctx, t.name, t.rows); err != nil {
			return err
		}
	}
	out := filepath.Join(b.dir, "mem")
	sinks := map[string]struct{ sink, settings string }{
		"PostgreSQL": {fmt.Sprintf(`sink: {connector: postgres, url: "%s"}`, b.sink.URL("")), "slots: 2, memory: 64MiB, consistency: snapshot"},
		"Parquet":    {"sink: {connector: files, path: " + out + ", format: parquet}", "slots: 2, memory: 256MiB, consistency: snapshot"},
	}
	for _, name := range []string{"PostgreSQL", "Parquet"} {
		s := sinks[name]
		var rss [2]float64
		for i, table := range []string{"public.small", "public.big"} {
			if err := os.RemoveAll(out); err != nil {
				return err
			}
			if _, err := b.dst.Exec(ctx, "DROP SCHEMA IF EXISTS _tranship CASCADE; DROP TABLE IF EXISTS "+table); err != nil {
				return err
			}
			fig, err := b.tranship(ctx, s.sink, table, s.settings)
			if err != nil {
				return err
			}
			rss[i] = float64(fig.rss) / (1 << 20)
			fmt.Printf("| → %s, %s | %.0f | %.1f |\n", name, table, rss[i], fig.wall)
		}
		fmt.Printf("| → %s, large / small | %.2f | |\n", name, rss[1]/rss[0])
	}
	if _, err := b.src.Exec(ctx, `CREATE TABLE public.wide (id bigint PRIMARY KEY, body text);
		INSERT INTO public.wide SELECT g, repeat(md5(g::text), 50000000 / 32) FROM generate_series(1, 4) g`); err != nil {
		return err
	}
	for _, name := range []string{"PostgreSQL", "Parquet"} {
		s := sinks[name]
		if err := os.RemoveAll(out); err != nil {
			return err
		}
		fig, err := b.tranship(ctx, s.sink, "public.wide", "slots: 2, memory: 384MiB, consistency: chunked")
		if err != nil {
			return err
		}
		fmt.Printf("| → %s, 4 rows of 50 MB, memory: 384MiB | %.0f | %.1f |\n", name, float64(fig.rss)/(1<<20), fig.wall)
	}
	return nil
}
