package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// check looks for everything that must hold in the end.
func (c *chaos) check(ctx context.Context) error {
	control, err := pgx.Connect(ctx, c.control.URL("control"))
	if err != nil {
		return err
	}
	defer func() { _ = control.Close(context.WithoutCancel(ctx)) }()
	target, err := pgx.Connect(ctx, c.data.URL("target"))
	if err != nil {
		return err
	}
	defer func() { _ = target.Close(context.WithoutCancel(ctx)) }()
	var errs []error
	for _, p := range c.pipes {
		errs = append(errs, c.compare(ctx, target, p))
	}
	errs = append(errs, c.atRest(ctx, control), c.notified(ctx, control))
	for _, q := range invariants {
		var bad int64
		if err := control.QueryRow(ctx, q.sql).Scan(&bad); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", q.what, err))
		} else if bad > 0 {
			errs = append(errs, fmt.Errorf("%s: %d", q.what, bad))
		}
	}
	errs = append(errs, c.takenUp(ctx, control))
	return errors.Join(errs...)
}

// invariants are counts that must be zero.
var invariants = []struct{ what, sql string }{
	{"runs that have not completed", `SELECT count(*) FROM tranship.runs WHERE state <> 'completed'`},
	{"runs whose facts have gaps or doubles", `SELECT count(*) FROM tranship.runs r LEFT JOIN LATERAL
		(SELECT count(*) AS n, min(number) AS first, max(number) AS last FROM tranship.facts f WHERE f.organization = r.organization AND f.run = r.id) f ON true
		WHERE f.n <> r.last_fact OR f.first <> 1 OR f.last <> r.last_fact`},
	{"runs that began or ended more than once", `SELECT count(*) FROM (SELECT run FROM tranship.facts WHERE type IN ('run.started', 'run.completed')
		GROUP BY run, type HAVING count(*) <> 1) x`},
	{"runs that are not in the read model, or not as they ended", `SELECT count(*) FROM tranship.runs r
		LEFT JOIN tranship.run_history h ON h.organization = r.organization AND h.run = r.id
		WHERE h.state IS DISTINCT FROM r.state`},
	{"runs without exactly one notification in the ledger", `SELECT count(*) FROM tranship.runs r
		WHERE (SELECT count(*) FROM tranship.notification_deliveries n WHERE n.organization = r.organization AND n.run = r.id) <> 1`},
	{"facts that were not passed on", `SELECT count(*) FROM tranship.fact_relays`},
	{"slots that are held", `SELECT count(*) FROM tranship.slots WHERE holder <> ''`},
	{"offers that are left", `SELECT count(*) FROM tranship.attempt_offers`},
	{"splits that are not done or are owned", `SELECT count(*) FROM tranship.splits WHERE NOT done`},
}

// compare compares a target with its source: a row for each of the source's, or in
// append mode one for each and run.
func (c *chaos) compare(ctx context.Context, target *pgx.Conn, p *pipe) error {
	want := int64(1)
	if p.write == "append" {
		want = int64(len(p.completed))
	}
	var rows, keys, wrong int64
	err := target.QueryRow(ctx, fmt.Sprintf(`SELECT coalesce(sum(n), 0), count(*), count(*) FILTER (WHERE n <> $1 OR id NOT BETWEEN 1 AND $2)
		FROM (SELECT id, count(*) AS n FROM public.%s WHERE v = md5(id::text) || repeat('x', 200) GROUP BY id) x`, p.name), want, c.options.rows).Scan(&rows, &keys, &wrong)
	if err != nil {
		return fmt.Errorf("compare %s: %w", p.name, err)
	}
	if rows != want*int64(c.options.rows) || keys != int64(c.options.rows) || wrong > 0 {
		return fmt.Errorf("%s (%s, %d runs): %d rows of %d keys, %d keys not %d times; wanted %d keys", p.name, p.write, len(p.completed), rows, keys, wrong, want, c.options.rows)
	}
	return nil
}

// atRest waits until the sweep is disarmed: nothing is left to do.
func (c *chaos) atRest(ctx context.Context, control *pgx.Conn) error {
	deadline := time.Now().Add(c.lease + 30*time.Second)
	for {
		var armed bool
		if err := control.QueryRow(ctx, `SELECT armed FROM tranship.arming`).Scan(&armed); err != nil {
			return err
		}
		if !armed {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("the sweep is still armed though nothing is left to do")
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// sweepTime is the longest pause between two sweeps while there is work.
const sweepTime = 5 * time.Second

// takenUp checks that what a killed process held went on elsewhere within the
// lease time and a sweep; what the control database's own restart took is allowed.
func (c *chaos) takenUp(ctx context.Context, control *pgx.Conn) error {
	var errs []error
	slowest := time.Duration(0)
	for _, d := range c.killed {
		for _, run := range d.runs {
			var next *time.Time
			err := control.QueryRow(ctx, `SELECT min(at) FROM tranship.facts WHERE run = $1 AND at > $2
				AND type IN ('attempt.interrupted', 'attempt.started', 'run.completed', 'attempt.handed_over')`, run, d.at).Scan(&next)
			if err != nil {
				return err
			}
			if next == nil {
				continue // it had ended just before the kill
			}
			slowest = max(slowest, next.Sub(d.at))
			if wait := next.Sub(d.at); wait > c.lease+sweepTime+outage {
				errs = append(errs, fmt.Errorf("run %s went on only %s after its process was killed", run, wait.Round(time.Millisecond)))
			}
		}
	}
	c.tally["slowest takeover in ms"] = int(slowest.Milliseconds())
	return errors.Join(errs...)
}

// outage is what a restart of the control database's server and the waits for it add.
const outage = 10 * time.Second

func (c *chaos) report(took time.Duration) {
	runs := 0
	for _, p := range c.pipes {
		runs += len(p.completed)
	}
	fmt.Fprintf(os.Stderr, "chaos: %d runs of %d pipelines completed in %s, nothing lost, doubled or stuck\n", runs, len(c.pipes), took.Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(c.tally)) {
		fmt.Fprintf(os.Stderr, "  %4d  %s\n", c.tally[name], name)
	}
}
