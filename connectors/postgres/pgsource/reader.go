package pgsource

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

// readerConn is a connection for reads; it is used by one read at a time and
// kept for the next when the read ended cleanly.
type readerConn struct {
	pc *pgconn.PgConn
}

// endTimeout bounds how long ending a server session may take: within it a
// canceled read is gone from the server.
const endTimeout = 2 * time.Second

func (r *readerConn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = r.pc.Close(ctx) // the server ends the session either way
}

func (s *Session) takeReader(ctx context.Context, role pgconf.Role) (*readerConn, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, engine.Bugf("use of a closed postgres source session")
	}
	var r *readerConn
	if n := len(s.readers); n > 0 {
		r, s.readers = s.readers[n-1], s.readers[:n-1]
	}
	s.mu.Unlock()
	if r != nil {
		// The session is named after its work (P5). An error means that the server
		// ended it meanwhile.
		_, err := r.pc.Exec(ctx, "SET application_name = "+pgconf.QuoteLiteral(pgconf.AppName(s.opt.RunID, role))).ReadAll()
		if err == nil {
			return r, nil
		}
		r.close()
	}
	conn, err := pgconf.Connect(ctx, s.cfg, s.opt, role)
	if err != nil {
		return nil, err
	}
	r = &readerConn{pc: conn.PgConn()}
	if _, err := r.results(ctx, "SET jit = off"); err != nil {
		r.close()
		return nil, pgconf.Classify(fmt.Errorf("prepare postgres session: %w", err))
	}
	if s.version >= 140000 {
		// A server that computes before it sends notices a client that went away.
		// Not every system can look; there the setting is refused and left alone.
		_, err := r.results(ctx, "SET client_connection_check_interval = '2s'")
		if err != nil && r.pc.IsClosed() {
			return nil, pgconf.Classify(fmt.Errorf("prepare postgres session: %w", err))
		}
	}
	return r, nil
}

func (s *Session) giveReader(r *readerConn) {
	s.mu.Lock()
	if !s.closed && len(s.readers) < max(1, s.opt.Slots) {
		s.readers = append(s.readers, r)
		r = nil
	}
	s.mu.Unlock()
	if r != nil {
		r.close()
	}
}

// results runs statements and returns their rows as text.
func (r *readerConn) results(ctx context.Context, sql string) ([]*pgconn.Result, error) {
	return r.pc.Exec(ctx, sql).ReadAll()
}

// endOlderClaims ends what earlier claims of the split left at the server (P5): a
// frozen reader holds its lock past all timeouts.
func (r *readerConn) endOlderClaims(ctx context.Context, runID, split string, claim int64) error {
	if claim <= 1 {
		return nil
	}
	prefix := pgconf.AppNamePrefix(runID, split)
	sql := fmt.Sprintf(`SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity a
WHERE a.pid <> pg_catalog.pg_backend_pid() AND a.usename = current_user AND a.datname = pg_catalog.current_database()
AND pg_catalog.starts_with(a.application_name, %[1]s)
AND CASE WHEN pg_catalog.substr(a.application_name, %[2]d) ~ '^[0-9]{1,18}$' THEN pg_catalog.substr(a.application_name, %[2]d)::int8 < %[3]d ELSE false END`,
		pgconf.QuoteLiteral(prefix), len(prefix)+1, claim)
	if _, err := r.results(ctx, sql); err != nil {
		return pgconf.Classify(fmt.Errorf("end sessions of older claims: %w", err))
	}
	return nil
}

// begin opens the read's transaction: lock, then snapshot, then the check that the
// relation is still the planned one (P12).
func (s *Session) begin(ctx context.Context, r *readerConn, d *descriptor, req *engine.ReadRequest) error {
	for range rewriteTries {
		again, err := s.beginOnce(ctx, r, d, req)
		if err != nil {
			return err
		}
		if !again {
			return nil
		}
		if _, err := r.results(ctx, "ROLLBACK"); err != nil {
			return pgconf.Classify(err)
		}
	}
	return rewrittenAllTheTime(resourceName(d.Schema, d.Name))
}

func (s *Session) beginOnce(ctx context.Context, r *readerConn, d *descriptor, req *engine.ReadRequest) (again bool, err error) {
	name := resourceName(d.Schema, d.Name)
	lock := lockSQL(d.Kind, !d.Partial, qualified(d.Schema, d.Name))
	isQuery := !strings.HasPrefix(lock, "LOCK")
	start := "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	if !isQuery || d.Snapshot == "" {
		start += "; " + lock
	}
	if _, err := r.results(ctx, start); err != nil {
		if pgconf.IsState(err, "42P01") || pgconf.IsState(err, "3F000") {
			return false, d.changed("it does not exist any more")
		}
		return false, pgconf.Classify(fmt.Errorf("%s: lock it for reading: %w", name, err))
	}
	if d.Snapshot != "" {
		if _, err := r.results(ctx, "SET TRANSACTION SNAPSHOT "+pgconf.QuoteLiteral(d.Snapshot)); err != nil {
			switch {
			case pgconf.IsState(err, "22023"), pgconf.IsState(err, "42704"), pgconf.IsState(err, "55000"):
				return false, &snapshotError{resource: name, what: "the server does not know the snapshot any more"}
			}
			return false, pgconf.Classify(fmt.Errorf("%s: take over the snapshot: %w", name, err))
		}
		if isQuery {
			if _, err := r.results(ctx, lock); err != nil {
				return false, pgconf.Classify(fmt.Errorf("%s: lock it for reading: %w", name, err))
			}
		}
	}
	return s.verify(ctx, r, d, req)
}

// changed is the error for a relation that is not the planned one any more. A
// replace that is not published yet can begin anew by itself; other writes can't
// take back what they applied, so the user decides.
func (d *descriptor) changed(what string) error {
	if d.Snapshot != "" || d.Restart {
		return &snapshotError{resource: resourceName(d.Schema, d.Name), what: what + " (as it was when the run was planned)"}
	}
	return engine.Permanentf("run again with --restart, or reset the resource", "%s: %s (as it was when the run was planned)", resourceName(d.Schema, d.Name), what)
}

// verify compares the relation with the plan. It also takes the transaction's
// snapshot, unless one was taken over.
func (s *Session) verify(ctx context.Context, r *readerConn, d *descriptor, req *engine.ReadRequest) (again bool, err error) {
	sql := []string{
		"SELECT coalesce(pg_catalog.to_regclass(" + pgconf.QuoteLiteral(qualified(d.Schema, d.Name)) + ")::oid, 0)",
		fmt.Sprintf("SELECT attname, atttypid, atttypmod FROM pg_catalog.pg_attribute WHERE attrelid = %d AND attnum > 0 AND NOT attisdropped", d.OID),
		fmt.Sprintf(tablesSQL, d.OID, false),
	}
	if path := searchPathSQL(d.Schemas); path != "" {
		sql = append(sql, path)
	}
	res, err := r.results(ctx, strings.Join(sql, ";\n"))
	if err != nil {
		return false, pgconf.Classify(fmt.Errorf("%s: look it up: %w", resourceName(d.Schema, d.Name), err))
	}
	if len(res) < 3 || len(res[0].Rows) != 1 {
		return false, engine.Bugf("%s: the look-up returned %d results", resourceName(d.Schema, d.Name), len(res))
	}
	if oid := number(res[0].Rows[0][0]); oid != int64(d.OID) {
		return false, d.changed("it was dropped and made anew")
	}
	if err := d.verifyColumns(res[1].Rows, req); err != nil {
		return false, err
	}
	return d.verifyFiles(res[2].Rows, req)
}

func (d *descriptor) verifyColumns(rows [][][]byte, req *engine.ReadRequest) error {
	name := resourceName(d.Schema, d.Name)
	type typ struct{ oid, mod int64 }
	now := make(map[string]typ, len(rows))
	for _, r := range rows {
		now[string(r[0])] = typ{number(r[1]), number(r[2])}
	}
	for _, f := range req.Plan.Resource.Schema.Fields {
		t, ok := now[f.Name]
		switch {
		case !ok:
			return engine.Permanentf("run again with --restart to plan it anew, or bring the column back",
				"%s: column %q, which the run was planned with, was dropped or renamed", name, f.Name)
		case t.oid != int64(f.Native.OID) || t.mod != int64(f.Native.Typmod):
			return engine.Permanentf("run again with --restart to plan it anew",
				"%s: column %q is not of type %s any more, which the run was planned with", name, f.Name, f.Native.Type)
		}
	}
	return nil
}

// verifyFiles notices tables that were truncated or rewritten: after the snapshot,
// which then shows nothing of them and no error (P12), or since the plan.
func (d *descriptor) verifyFiles(rows [][][]byte, req *engine.ReadRequest) (again bool, err error) {
	current := make(map[uint32]uint32, len(rows))
	for _, r := range rows {
		oid, seen, now := number(r[0]), number(r[6]), number(r[7])
		current[uint32(oid)] = uint32(now)
		if seen == 0 || seen == now {
			continue
		}
		if d.Snapshot != "" {
			return false, d.changed("it was truncated or rewritten")
		}
		return true, nil
	}
	if !d.Restart || len(req.Plan.Splits) == 0 {
		return false, nil
	}
	first, err := parseDescriptor(req.Plan.Splits[0])
	if err != nil {
		return false, err
	}
	for oid, file := range first.Files {
		// New partitions are nothing to worry about; one that is gone or has another
		// file is.
		if now, ok := current[oid]; d.Way == byKeys && (!ok || now != file) {
			return false, d.changed("it was truncated or rewritten")
		}
	}
	return false, nil
}

func number(b []byte) int64 {
	n, _ := strconv.ParseInt(string(b), 10, 64) // the server prints its own integers
	return n
}
