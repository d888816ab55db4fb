//go:build unix

package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// DefaultVersion is the major version used when Config.Version is empty.
const DefaultVersion = "17"

// releases pins one release per major version, the newest that exists for every
// platform the project is developed on.
var releases = map[string]string{
	"13": "13.22.0",
	"14": "14.23.0",
	"15": "15.19.0",
	"16": "16.15.0",
	"17": "17.11.0",
	"18": "18.4.0",
}

// Versions lists the major versions that can be started by name.
func Versions() []string { return []string{"13", "14", "15", "16", "17", "18"} }

// release resolves a major version or a full one ("17.11.0") to a full one.
func release(version string) (string, error) {
	if version == "" {
		version = DefaultVersion
	}
	if full, ok := releases[version]; ok {
		return full, nil
	}
	if strings.Count(version, ".") == 2 {
		return version, nil
	}
	return "", fmt.Errorf("unknown PostgreSQL version %q: known are %s, or a full one like 17.11.0",
		version, strings.Join(Versions(), ", "))
}

// Fetch makes sure that the binaries of the configuration's version are in its
// cache and returns the folder that holds bin, lib and share. Processes that ask
// at the same time wait for one of them to do the work.
func Fetch(ctx context.Context, config Config) (string, error) {
	full, err := release(config.Version)
	if err != nil {
		return "", err
	}
	cache, err := cacheDir(config.Cache)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, fmt.Sprintf("%s-%s-%s", full, runtime.GOOS, runtime.GOARCH))
	if complete(dir) {
		return dir, nil
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete(dir) {
		return dir, nil
	}
	if err := unpack(ctx, full, dir, config.Repository); err != nil {
		return "", fmt.Errorf("fetch PostgreSQL %s: %w", full, err)
	}
	return dir, nil
}

// unpack lets embedded-postgres download, verify and extract a release, then
// moves it to dir in one step, so that a killed process leaves no half cache.
func unpack(ctx context.Context, full, dir, repository string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "unpack-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	tree := filepath.Join(tmp, "tree")

	// The library has no call that only fetches. It is asked for a cluster with a
	// locale that cannot exist, so it stops after unpacking, before any server.
	config := embeddedpostgres.DefaultConfig().
		Version(embeddedpostgres.PostgresVersion(full)).
		Port(0).
		CachePath(tmp).
		RuntimePath(filepath.Join(tmp, "runtime")).
		BinariesPath(tree).
		Locale("no-such-locale").
		Logger(io.Discard)
	if repository != "" {
		config = config.BinaryRepositoryURL(repository)
	}
	const tries = 3
	for try := 1; ; try++ {
		done := make(chan error, 1)
		go func() { done <- embeddedpostgres.NewDatabase(config).Start() }()
		select {
		case err = <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if _, statErr := os.Stat(filepath.Join(tree, "bin", "postgres")); statErr == nil {
			break
		}
		if try == tries {
			return err
		}
		_ = os.RemoveAll(tree)
		select {
		case <-time.After(time.Duration(try) * 2 * time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := makeReadable(tree); err != nil {
		return err
	}
	_ = os.RemoveAll(dir)
	return os.Rename(tree, dir)
}

// makeReadable undoes what a strict umask did: another user will run the tree.
func makeReadable(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if d.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return root.Chmod(path, mode)
	})
}

func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "bin", "postgres"))
	return err == nil
}

// cacheDir returns the folder for binaries: the user's cache, or for root a
// folder that the server's user can reach.
func cacheDir(dir string) (string, error) {
	if dir == "" {
		if os.Geteuid() == 0 {
			dir = "/var/tmp/tranship-postgres"
		} else {
			base, err := os.UserCacheDir()
			if err != nil {
				return "", err
			}
			dir = filepath.Join(base, "tranship-postgres")
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask says
			return "", err
		}
	}
	// A folder that someone else made in a shared place could hold anything.
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int64(st.Uid) != int64(os.Geteuid()) {
		return "", fmt.Errorf("cache folder %s belongs to another user: name another one", dir)
	}
	return dir, nil
}

// lock takes an exclusive lock on a file, polling so that ctx can end the wait.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			_ = f.Close()
			return nil, context.Cause(ctx)
		}
	}
}
