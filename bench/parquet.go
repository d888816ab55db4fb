package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// parquet measures PostgreSQL to Parquet beside connectorx with pyarrow and
// beside DuckDB's PostgreSQL extension.
func (b *bench) parquet(ctx context.Context) error {
	python, err := filepath.Abs(".tools/bench-py/bin/python")
	if err != nil {
		return err
	}
	script, err := filepath.Abs("bench/peers/peers.py")
	if err != nil {
		return err
	}
	if _, err := os.Stat(python); err != nil {
		setup := fmt.Sprintf("python3 -m venv .tools/bench-py && %s -m pip install -q -r bench/peers/requirements.txt", python)
		cmd := exec.CommandContext(ctx, "bash", "-c", setup)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("install the peers: %w", err)
		}
	}
	peer := func(name, what string) *contender {
		out := filepath.Join(b.dir, what+".parquet")
		return &contender{name: name,
			run: func(ctx context.Context) (figure, error) {
				return measure(ctx, b.dir, nil, python, script, what, b.source.URL(""), "public.trips", out)
			},
			check: func(ctx context.Context) (string, error) { return b.parquetContent(ctx, python, script, out) },
		}
	}
	out := filepath.Join(b.dir, "out")
	return b.compare(ctx, "PostgreSQL → Parquet", b.rows, []*contender{
		peer("connectorx + pyarrow, 2 partitions", "connectorx"),
		peer("DuckDB, postgres extension", "duckdb"),
		{name: "tranship, 2 slots, verify counts",
			run: func(ctx context.Context) (figure, error) {
				if err := os.RemoveAll(out); err != nil {
					return figure{}, err
				}
				return b.tranship(ctx, "sink: {connector: files, path: "+out+", format: parquet}", "public.trips",
					"slots: 2, memory: 256MiB, consistency: snapshot, verify: counts")
			},
			check: func(ctx context.Context) (string, error) {
				return b.parquetContent(ctx, python, script, filepath.Join(out, "public.trips"))
			},
		},
	})
}

// parquetContent is a hash of all values in key order, printed in one way by DuckDB.
func (b *bench) parquetContent(ctx context.Context, python, script, path string) (string, error) {
	body, err := exec.CommandContext(ctx, python, script, "content", path).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("read %s back: %w\n%s", path, err, body)
	}
	return strings.TrimSpace(string(body)), nil
}
