package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/internal/compose/serve"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// apiRate and apiTime are the load: reads a second, of all kinds in turn.
const (
	apiRate = 100
	apiTime = 30 * time.Second
)

// readAPI measures reads of the API at 100 a second on many runs with facts, while
// nothing else happens. The rows are made by SQL, as the store would have them.
func readAPI(ctx context.Context, runs, factsEach int) error {
	server, err := pgtest.Start(ctx, pgtest.Config{Params: map[string]string{"shared_buffers": "256MB", "max_wal_size": "4GB"}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	dir, err := os.MkdirTemp("", "tranship-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, stop := context.WithCancel(ctx)
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, serve.Config{
			Listen: "127.0.0.1:0", DatabaseURL: server.URL(""), Folder: dir, BootstrapKeyFile: filepath.Join(dir, "key"), Workers: -1,
			Catalog: catalog.New(io.Discard), Version: "bench", Lookup: os.LookupEnv, Log: slog.New(slog.DiscardHandler), Ready: func(a string) { ready <- a },
		})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			fmt.Fprintln(os.Stderr, "bench: serve:", err)
		}
	}()
	var base string
	select {
	case a := <-ready:
		base = "http://" + a
	case err := <-ended:
		ended <- err
		return fmt.Errorf("serve ended: %w", err)
	}
	key, err := os.ReadFile(filepath.Join(dir, "key"))
	if err != nil {
		return err
	}
	began := time.Now()
	size, run, pipeline, err := fill(ctx, server.URL(""), runs, factsEach)
	if err != nil {
		return fmt.Errorf("fill the database: %w", err)
	}
	fmt.Printf("reads of the API, PostgreSQL %s, %d processors, load %s: %d runs, %d facts, %s, filled in %s\n",
		server.Version(), runtime.NumCPU(), load(), runs, runs*factsEach, size, time.Since(began).Round(time.Second))
	now := time.Now().UTC()
	paths := []string{
		"/v1/runs", "/v1/runs?limit=500", "/v1/runs?pipeline=" + pipeline, "/v1/runs?state=running", "/v1/runs/" + run,
		"/v1/runs/" + run + "/facts", "/v1/runs/" + run + "/resources", "/v1/pipelines", "/v1/metrics/pipelines",
		"/v1/metrics/series?metric=runs", "/v1/metrics/aggregates?metric=bytes&group_by=pipeline&from=" + now.AddDate(0, 0, -7).Format(time.RFC3339),
		"/v1/metrics/costs", "/v1/deliveries", "/v1/audit",
	}
	return ask(ctx, base, strings.TrimSpace(string(key)), paths)
}

// ask sends the reads at a steady rate, whether or not earlier ones were answered,
// and shows how long each kind took from when it was due.
func ask(ctx context.Context, base, key string, paths []string) error {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	get := func(path string) error {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
		if err != nil {
			return err
		}
		q.Header.Set("Authorization", "Bearer "+key)
		res, err := client.Do(q)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
			return errors.Join(err, fmt.Errorf("GET %s: %s %s", path, res.Status, text))
		}
		return nil
	}
	for range 5 { // warm up
		for _, p := range paths {
			if err := get(p); err != nil {
				return err
			}
		}
	}
	var mu sync.Mutex
	took := map[string][]time.Duration{}
	var all []time.Duration
	var failed error
	var wait sync.WaitGroup
	t := time.NewTicker(time.Second / apiRate)
	defer t.Stop()
	for i := range int(apiTime/time.Second) * apiRate {
		due := <-t.C
		wait.Go(func() {
			p := paths[i%len(paths)]
			err := get(p)
			d := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			took[p], all = append(took[p], d), append(all, d)
			failed = errors.Join(failed, err)
		})
	}
	wait.Wait()
	if failed != nil {
		return failed
	}
	slices.Sort(all)
	show(fmt.Sprintf("%d reads at %d a second", len(all), apiRate), all)
	for _, p := range paths {
		slices.Sort(took[p])
		show("  GET "+p, took[p])
	}
	return nil
}

// fill makes runs of 200 pipelines over the last 400 days, each with facts, its row
// of the history, a resource, a cost and a delivery.
func fill(ctx context.Context, url string, runs, factsEach int) (size, run, pipeline string, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", "", "", err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, sql := range []string{
		`SET search_path = tranship, public`, `SET session_replication_role = replica`, `SET synchronous_commit = off`, `SET maintenance_work_mem = '256MB'`,
		`CREATE TEMPORARY TABLE p AS SELECT n, gen_random_uuid() AS id, (SELECT id FROM organizations) AS o FROM generate_series(0, 199) n`,
		`INSERT INTO pipelines (organization, id, name, current) SELECT o, id, 'p' || n, 1 FROM p`,
		`INSERT INTO pipeline_versions (organization, pipeline, number, hash, graph, created_by) SELECT o, id, 1, 'h', '{}', '' FROM p`,
		fmt.Sprintf(`INSERT INTO runs (organization, id, pipeline, title, pipeline_name, pipeline_number, version, route_key, state, created_at, started_at, ended_at, last_fact)
			SELECT p.o, (substr(uuid_at(x.at)::text, 1, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid, p.id, 'p' || p.n, 'p' || p.n, 1, 'h', 'a->b',
				CASE WHEN x.n %% 20 = 0 THEN 'failed' ELSE 'completed' END, x.at, x.at, x.at + interval '1 minute', %[2]d
			FROM (SELECT n, now() - interval '400 days' * n / %[1]d AS at FROM generate_series(0, %[1]d - 1) n) x JOIN p ON p.n = x.n %% 200`, runs, factsEach),
		fmt.Sprintf(`INSERT INTO facts (organization, run, number, id, type, version, at, payload) SELECT organization, id, n, gen_random_uuid(), 'epoch.committed', 1, created_at,
			'{"resource":"public.orders","split":"public.orders/0.0","claim":1,"epoch":1,"counts":{"rows_read":1000,"rows_applied":1000,"bytes":100000}}'
			FROM runs, generate_series(1, %d) n`, factsEach),
		`INSERT INTO run_history (organization, run, pipeline, pipeline_name, route_key, version, created_at, folded, state, started_at, ended_at, rows_read, rows_applied, bytes)
			SELECT organization, id, pipeline, title, route_key, version, created_at, last_fact, state, started_at, ended_at, 1000, 1000, 100000 FROM runs`,
		`INSERT INTO run_costs SELECT organization, id, pipeline, created_at, 60000, 60000, 100000 FROM runs`,
		`INSERT INTO resources (organization, run, seq, name, generation, plan) SELECT organization, id, 0, 'public.orders', 0, '{"read":"full","write":"append"}' FROM runs`,
		`INSERT INTO splits (organization, run, id, resource, resource_seq, seq, kind, generation, claim, done, totals)
			SELECT organization, id, 'public.orders/0.0', 'public.orders', 0, 0, 'read', 0, 1, true, '{"rows_read":1000,"rows_applied":1000,"bytes":100000}' FROM runs`,
		`INSERT INTO metrics_hourly SELECT organization, date_trunc('hour', created_at), pipeline, 'postgres', 'postgres', '', 'completed', count(*), 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1
			FROM runs WHERE state = 'completed' GROUP BY 1, 2, 3`,
		`INSERT INTO metrics_durations SELECT organization, hour, pipeline, source, sink, resource, status, 100, runs FROM metrics_hourly`,
		`INSERT INTO metrics_daily SELECT organization, date_trunc('day', hour, 'UTC'), pipeline, source, sink, resource, status, sum(runs), 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1
			FROM metrics_hourly GROUP BY 1, 2, 3, 4, 5, 6, 7`,
		`INSERT INTO metrics_daily_durations SELECT organization, day, pipeline, source, sink, resource, status, 100, runs FROM metrics_daily`,
		`INSERT INTO notification_rules (organization, id, name, events, channel) SELECT o, id, 'r' || n, '{run.failed}', 'email' FROM p LIMIT 1`,
		`INSERT INTO notification_deliveries (organization, id, rule, event, event_key, pipeline, run, channel, state, payload, created_at, sent_at)
			SELECT r.organization, r.id, n.id, 'run.failed', r.id::text, r.pipeline, r.id, 'email', 'sent', '{}', r.created_at, r.ended_at FROM runs r, notification_rules n WHERE r.state = 'failed'`,
		`VACUUM ANALYZE`, `CHECKPOINT`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return "", "", "", fmt.Errorf("%s: %w", sql, err)
		}
	}
	err = conn.QueryRow(ctx, `SELECT pg_size_pretty(pg_database_size(current_database())), (SELECT id::text FROM runs ORDER BY created_at DESC OFFSET 1000 LIMIT 1), (SELECT name FROM pipelines LIMIT 1)`).
		Scan(&size, &run, &pipeline)
	return size, run, pipeline, err
}
