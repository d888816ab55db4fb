package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	driver "modernc.org/sqlite" // Registers "sqlite".

	"github.com/tranship-io/tranship/engine"
)

// DefaultKeepRuns is how many runs of a route keep their facts and receipts.
const DefaultKeepRuns = 50

// DefaultBusyTimeout is how long a write waits for another process's write.
// Transactions here take milliseconds; only a stopped process holds on longer.
const DefaultBusyTimeout = 30 * time.Second

// readers is the number of connections that read; each costs about 2 MB of cache.
const readers = 4

// Option changes how a state file is opened.
type Option func(*options)

type options struct {
	keepRuns int
	busy     time.Duration
}

// WithKeepRuns sets how many runs of a route keep their facts and receipts; at
// least 1, default [DefaultKeepRuns].
func WithKeepRuns(n int) Option { return func(o *options) { o.keepRuns = max(1, n) } }

// WithBusyTimeout sets how long a write waits for another process's write;
// default [DefaultBusyTimeout].
func WithBusyTimeout(d time.Duration) Option { return func(o *options) { o.busy = d } }

// Store is an open state file. Its methods may be called concurrently.
type Store struct {
	path    string
	options options
	ownUUID string
	writeDB *sql.DB
	write   *writer
	read    *sql.DB
	// locks are the routes that this process works on; guarded by write's turn.
	locks map[string]*processLock

	closeOnce sync.Once
	closeErr  error
}

var _ engine.State = (*Store)(nil)

// Open opens the state file at path, making it and its folder if needed, and
// migrates a file of an older version. A file of a newer version, or one that
// is no state file, is refused with a permanent error and left untouched.
func Open(ctx context.Context, path string, opts ...Option) (*Store, error) {
	o := options{keepRuns: DefaultKeepRuns, busy: DefaultBusyTimeout}
	for _, opt := range opts {
		opt(&o)
	}
	path, err := place(path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, options: o, locks: map[string]*processLock{}}
	if err := s.open(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// place makes the file's folder and returns the file's absolute path with links
// followed, so that two names of one file share their lock files.
func place(path string) (string, error) {
	const hint = "name a writable local file for the state"
	if path == "" || path == ":memory:" {
		return "", engine.Permanentf(hint, "open state: %q is no file", path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", engine.Permanentf(hint, "open state %q: %w", path, err)
	}
	// Only the user may look: positions and errors hold values of the data.
	if err := os.MkdirAll(filepath.Dir(abs), 0o700); err != nil {
		return "", engine.Permanentf(hint, "open state %q: make its folder: %w", path, err)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", engine.Permanentf(hint, "open state %q: %w", path, err)
	}
	abs = filepath.Join(dir, filepath.Base(abs))
	if target, err := filepath.EvalSymlinks(abs); err == nil {
		abs = target
	}
	f, err := os.OpenFile(abs, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", engine.Permanentf(hint, "open state %q: %w", path, err)
	}
	return abs, f.Close()
}

func (s *Store) open(ctx context.Context) error {
	// A commit waits for the log's data and size, not for its timestamps: as
	// durable, and about three times as fast under load where it is to be had.
	if _, err := driver.Fdatasync(true); err != nil && !errors.Is(err, driver.ErrFdatasyncUnavailable) {
		return s.fail("set up", err)
	}
	var err error
	if s.writeDB, err = sql.Open("sqlite", s.dsn(nil)); err != nil {
		return s.fail("open", err)
	}
	s.writeDB.SetMaxOpenConns(1)
	conn, err := s.writeDB.Conn(ctx)
	if err != nil {
		return s.fail("open", err)
	}
	s.write = newWriter(conn)
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if s.read, err = sql.Open("sqlite", s.dsn([]string{"query_only(1)"})); err != nil {
		return s.fail("open", err)
	}
	s.read.SetMaxOpenConns(readers)
	return nil
}

// dsn names the file for the driver, with pragmas for every connection.
func (s *Store) dsn(pragmas []string) string {
	q := url.Values{"_pragma": append([]string{
		fmt.Sprintf("busy_timeout(%d)", s.options.busy.Milliseconds()),
		"foreign_keys(1)",
	}, pragmas...)}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(s.path), RawQuery: q.Encode()}
	return u.String()
}

// prepare checks the file's version before anything is changed, then sets its
// mode, migrates it, and reads the installation's id.
func (s *Store) prepare(ctx context.Context) error {
	old, err := s.checkVersion(ctx)
	if err != nil {
		return err
	}
	var mode string
	// Two processes that open a new file collide here without the busy timeout,
	// so try again.
	for until := time.Now().Add(s.options.busy); ; {
		err := s.write.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
		if err == nil {
			break
		}
		if !busy(err) || time.Now().After(until) {
			return s.fail("switch to the write-ahead log", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	if mode != "wal" {
		return engine.Permanentf("keep the state file on a local disk",
			"open state %s: the file system has no shared memory for SQLite's write-ahead log (journal mode stays %q)", s.path, mode)
	}
	for _, p := range []string{
		"PRAGMA synchronous = FULL",   // See the package comment: what is durable.
		"PRAGMA fullfsync = 1",        // macOS: reach the platter, not only the drive's cache.
		"PRAGMA temp_store = MEMORY",  // No files beside ours.
		"PRAGMA cache_size = -4096",   // 4 MB.
		"PRAGMA trusted_schema = OFF", // The file may come from elsewhere.
	} {
		if _, err := s.write.conn.ExecContext(ctx, p); err != nil {
			return s.fail("set up", err)
		}
	}
	// Opening a file that is as it should be writes nothing: it never waits for
	// a process that writes all the time.
	if old {
		if err := s.migrate(ctx); err != nil {
			return err
		}
	}
	err = s.write.conn.QueryRowContext(ctx, `SELECT value FROM meta WHERE key = 'installation'`).Scan(&s.ownUUID)
	return s.fail("read installation", err)
}

// Path returns the state file's absolute path.
func (s *Store) Path() string { return s.path }

// Close gives every lock back and closes the file. Runs that the process still
// works on can be taken over by another process from here on.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	var first error
	keep := func(err error) {
		if first == nil && err != nil {
			first = err
		}
	}
	if s.read != nil {
		keep(s.read.Close())
	}
	if s.write != nil {
		// The turn is kept: nothing is written any more.
		s.write.turn <- struct{}{}
		keep(s.write.close())
	}
	if s.writeDB != nil {
		keep(s.writeDB.Close())
	}
	// Last, so that nobody takes over while a write of ours is under way.
	for key, l := range s.locks {
		keep(l.release())
		delete(s.locks, key)
	}
	if first != nil {
		return s.fail("close", first)
	}
	return nil
}
