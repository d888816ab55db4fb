package files

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tranship-io/tranship/engine"
)

// stagePrefix begins the names of files being written.
const stagePrefix = ".part-"

// localStorage keeps objects as files below a folder.
type localStorage struct{ root string }

var _ storage = (*localStorage)(nil)

func openLocal(path string) (*localStorage, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, engine.Permanentf("", "find folder %s: %w", path, err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, engine.Permanentf("create it or choose another path", "make folder %s: %w", path, err)
	}
	// One folder has one identity, by whatever links it is reached.
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, engine.Permanentf("", "find folder %s: %w", path, err)
	}
	return &localStorage{root: abs}, nil
}

func (l *localStorage) identity() string { return "file://" + filepath.ToSlash(l.root) }

func (l *localStorage) path(key string) string {
	return filepath.Join(l.root, filepath.FromSlash(key))
}

func (l *localStorage) prepare(_ context.Context, folder string) error {
	return l.makeDir(l.path(folder))
}

// makeDir makes a folder and its parents durable: a file's own fsync does not
// make the names of new folders above it survive a power cut.
func (l *localStorage) makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if dir != l.root {
		if err := l.makeDir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return localError("make folder", err)
	}
	return syncDir(filepath.Dir(dir))
}

func (l *localStorage) stage(folder string) (*os.File, error) {
	dir := l.path(folder)
	if err := l.makeDir(dir); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, stagePrefix+"*")
	if err != nil {
		return nil, localError("make a file", err)
	}
	return f, nil
}

func (l *localStorage) put(_ context.Context, staged *os.File, o object) error {
	defer discard(staged)
	if err := staged.Chmod(0o644); err != nil {
		return localError("write file", err)
	}
	if err := staged.Sync(); err != nil {
		return localError("write file", err)
	}
	final := l.path(o.key)
	if err := l.makeDir(filepath.Dir(final)); err != nil {
		return err
	}
	// A link fails if the name exists, a rename would replace it.
	err := os.Link(staged.Name(), final)
	if errors.Is(err, fs.ErrExist) {
		st, statErr := os.Stat(final)
		if statErr != nil {
			return localError("write file", statErr)
		}
		if st.Size() != o.size {
			return engine.Bugf("file %s exists with %d bytes, %d were to be written", o.key, st.Size(), o.size)
		}
		err = nil
	}
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
		// A file system without links: names carry claim and digest, so a rename
		// can only replace equal bytes.
		err = os.Rename(staged.Name(), final)
	}
	if err != nil {
		return localError("write file", err)
	}
	return syncDir(filepath.Dir(final))
}

func (l *localStorage) open(_ context.Context, key string) (io.ReaderAt, int64, func(), error) {
	f, err := os.Open(l.path(key))
	if err != nil {
		return nil, 0, nil, localError("read back file", err)
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, nil, localError("read back file", err)
	}
	return f, st.Size(), func() { _ = f.Close() }, nil
}

func (l *localStorage) size(_ context.Context, key string) (int64, error) {
	st, err := os.Stat(l.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, errNotFound
	}
	if err != nil {
		return 0, localError("look at file", err)
	}
	return st.Size(), nil
}

func (l *localStorage) read(_ context.Context, key string) ([]byte, string, error) {
	b, err := os.ReadFile(l.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", errNotFound
	}
	if err != nil {
		return nil, "", localError("read file", err)
	}
	return b, localVersion(b), nil
}

func localVersion(b []byte) string {
	return fmt.Sprintf("%d-%08x", len(b), crc32.ChecksumIEEE(b))
}

// swap holds a lock from the comparison to the rename (P11); the lock is the
// kernel's, so a killed process leaves none behind.
func (l *localStorage) swap(ctx context.Context, key string, data []byte, version string) error {
	final := l.path(key)
	dir := filepath.Dir(final)
	if err := l.makeDir(dir); err != nil {
		return err
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, "."+filepath.Base(final)+".lock"))
	if err != nil {
		return localError("lock file", err)
	}
	defer unlock()
	_, found, err := l.read(ctx, key)
	if err != nil && !errors.Is(err, errNotFound) {
		return err
	}
	if found != version {
		return errConflict
	}
	tmp, err := os.CreateTemp(dir, stagePrefix+"*")
	if err != nil {
		return localError("write file", err)
	}
	defer discard(tmp)
	if _, err := tmp.Write(data); err != nil {
		return localError("write file", err)
	}
	if err := tmp.Chmod(0o644); err != nil {
		return localError("write file", err)
	}
	if err := tmp.Sync(); err != nil {
		return localError("write file", err)
	}
	if err := os.Rename(tmp.Name(), final); err != nil {
		return localError("write file", err)
	}
	return syncDir(dir)
}

func (l *localStorage) list(ctx context.Context, prefix string, fn func(string) error) error {
	root := l.path(prefix)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return localError("list folder", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(l.root, p)
		if err != nil {
			return engine.Bugf("list folder: %w", err)
		}
		return fn(filepath.ToSlash(rel))
	})
	return err
}

// remove deletes files and then the run folders that they leave empty.
func (l *localStorage) remove(_ context.Context, keys []string) error {
	for _, k := range keys {
		if err := os.Remove(l.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return localError("remove file", err)
		}
		// Removing a folder that isn't empty fails, which is what we want.
		for dir := filepath.Dir(l.path(k)); strings.Count(dir[len(l.root):], string(filepath.Separator)) > 1; dir = filepath.Dir(dir) {
			if os.Remove(dir) != nil {
				break
			}
		}
	}
	return nil
}

// tidy has nothing to do: list sees staged files too.
func (l *localStorage) tidy(context.Context, string, func(string) bool) error { return nil }

func (l *localStorage) close() {}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return localError("open folder", err)
	}
	defer func() { _ = d.Close() }()
	// Some file systems can't sync a folder and say so; then renames are durable
	// by themselves or not at all.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return localError("write folder", err)
	}
	return nil
}

// localError classifies an error of the file system where it is met.
func localError(doing string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return engine.Permanentf("free space or raise the quota, then run again: it goes on from the last checkpoint",
			"%s: %w", doing, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return engine.Permanentf("give this user the right to write there, or choose another path", "%s: %w", doing, err)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EIO),
		errors.Is(err, syscall.ESTALE), errors.Is(err, syscall.EINTR):
		return engine.Retryablef("%s: %w", doing, err)
	}
	return engine.Permanentf("", "%s: %w", doing, err)
}
