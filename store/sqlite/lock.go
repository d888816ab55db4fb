package sqlite

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// processLock is an operating-system lock on a route, held by this process
// until it lets go or dies.
type processLock struct{ file *os.File }

// errHeld tells that another process (or another Store of this one) has it.
var errHeld = errors.New("the lock is held")

// acquireFile takes the lock without waiting, or returns errHeld.
func acquireFile(path string) (*processLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// For people who look; nobody reads it to decide anything.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return &processLock{file: f}, nil
}

// release lets go. The file stays: deleting it would let two processes lock two
// files of one name.
func (l *processLock) release() error { return l.file.Close() }

// lockKey names a route's lock by content, not by row: the exclusion holds even
// when the state file was deleted and made anew while a process works.
func lockKey(r engine.Route) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{r.Pipeline, r.Source, r.Sink}, "\x00")))
	return hex.EncodeToString(sum[:12])
}

// lockRoute makes sure that this process holds the route, or returns ErrLocked.
// taken tells that it did not hold it before, so that whoever has leases on it is
// dead; if the transaction fails then, the lock is let go again. Locks are taken
// and let go only in our turn to write, so that the answer stays true in it.
func (s *Store) lockRoute(t *tx, r engine.Route) (taken bool, err error) {
	key := lockKey(r)
	if _, held := s.locks[key]; held {
		return false, nil
	}
	const hint = "make the folder of the state file writable"
	dir := s.path + ".locks"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, engine.Permanentf(hint, "lock pipeline %q: %w", r.Pipeline, err)
	}
	path := filepath.Join(dir, key+".lock")
	l, err := acquireFile(path)
	if errors.Is(err, errHeld) {
		return false, engine.Permanentf("wait for that process or stop it",
			"pipeline %q: %w%s", r.Pipeline, engine.ErrLocked, holderOf(path))
	}
	if err != nil {
		return false, engine.Permanentf(hint, "lock pipeline %q: %w", r.Pipeline, err)
	}
	s.locks[key] = l
	t.failed = append(t.failed, func() error { return s.unlockRoute(r) })
	return true, nil
}

func (s *Store) unlockRoute(r engine.Route) error {
	key := lockKey(r)
	l, ok := s.locks[key]
	if !ok {
		return nil
	}
	delete(s.locks, key)
	return l.release()
}

func holderOf(path string) string {
	b, err := os.ReadFile(path)
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return " (process " + pid + ")"
	}
	return ""
}
