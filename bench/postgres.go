package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// content is a hash over all rows in key order as a server prints them.
func content(ctx context.Context, c *pgx.Conn, table string) (string, error) {
	h := sha256.New()
	if _, err := c.Exec(ctx, "SET TimeZone = 'UTC'"); err != nil {
		return "", err
	}
	if _, err := c.PgConn().CopyTo(ctx, h, "COPY (SELECT * FROM "+table+" ORDER BY id) TO STDOUT"); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// postgres measures the whole job, key included, beside a one-stream pipe.
func (b *bench) postgres(ctx context.Context) error {
	check := func(ctx context.Context) (string, error) { return content(ctx, b.dst, "public.trips") }
	pipe := `psql -qX "$SRC" -c 'COPY public.trips TO STDOUT (FORMAT binary)' | psql -qX "$DST" -c 'COPY public.trips FROM STDIN (FORMAT binary)' && psql -qX "$DST" -c 'ALTER TABLE public.trips ADD PRIMARY KEY (id)'`
	fresh := func(ctx context.Context, q string) error {
		for _, q := range []string{"DROP TABLE IF EXISTS public.trips", "DROP SCHEMA IF EXISTS _tranship CASCADE", q, "CHECKPOINT"} {
			if _, err := b.dst.Exec(ctx, q); err != nil && q != "" {
				return err
			}
		}
		return nil
	}
	env := []string{"SRC=" + b.source.URL(""), "DST=" + b.sink.URL("")}
	tranship := func(name, settings string) *contender {
		return &contender{name: name, check: check, run: func(ctx context.Context) (figure, error) {
			if err := fresh(ctx, "SELECT 1"); err != nil {
				return figure{}, err
			}
			return b.tranship(ctx, fmt.Sprintf(`sink: {connector: postgres, url: "%s"}`, b.sink.URL("")), "public.trips", settings)
		}}
	}
	err := b.compare(ctx, "PostgreSQL → PostgreSQL with the key built", b.rows, []*contender{
		{name: "psql \\| psql, ADD PRIMARY KEY", check: check, run: func(ctx context.Context) (figure, error) {
			if err := fresh(ctx, fmt.Sprintf(tableDDL, "public.trips")); err != nil {
				return figure{}, err
			}
			return measure(ctx, b.dir, env, "bash", "-c", pipe)
		}},
		tranship("tranship, 2 slots, verify counts", "slots: 2, memory: 64MiB, consistency: snapshot, verify: counts"),
		tranship("tranship, 2 slots, verify digest", "slots: 2, memory: 64MiB, consistency: snapshot, verify: digest"),
	})
	if err != nil {
		return err
	}
	want, err := content(ctx, b.src, "public.trips")
	if err != nil {
		return err
	}
	got, err := check(ctx)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("the destination's content %s is not the source's %s", got, want)
	}
	return nil
}

// tranship runs the binary with a fresh state.
func (b *bench) tranship(ctx context.Context, sink, table, settings string) (figure, error) {
	file := filepath.Join(b.dir, "pipeline.yaml")
	body := fmt.Sprintf("version: 1\nname: bench\nsource: {connector: postgres, url: \"%s\"}\n%s\nresources: [{name: %s}]\nsettings: {%s}\n", b.source.URL(""), sink, table, settings)
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		return figure{}, err
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(b.dir, "state.db"+suffix)); err != nil && !os.IsNotExist(err) {
			return figure{}, err
		}
	}
	return measure(ctx, b.dir, nil, b.binary, "run", "-f", file, "--state", filepath.Join(b.dir, "state.db"))
}
