//go:build unix

package embedpg

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Place returns the folder for a cluster that its owner wants at path. That is
// the path itself, unless the process is root and the server's user cannot reach
// it (a home folder of root's): then it is a folder of /var/lib/tranship named
// after the path, and path becomes a link to it.
func Place(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if to, err := os.Readlink(path); err == nil {
		return to, nil
	}
	user, err := serverOwner()
	if err != nil || user == nil || user.reaches(filepath.Dir(path)) {
		return path, err
	}
	if _, err := os.Stat(path); err == nil {
		return "", fmt.Errorf("user %s, who must run PostgreSQL, cannot reach %s: let others search the folders above it", user.name, path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	sum := sha256.Sum256([]byte(path))
	to := "/var/lib/tranship/postgres-" + hex.EncodeToString(sum[:6])
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	if !user.reaches(filepath.Dir(to)) {
		return "", fmt.Errorf("user %s, who must run PostgreSQL, can reach neither %s nor %s", user.name, path, to)
	}
	return to, os.Symlink(to, path)
}

// reaches tells whether the user may search the folder and all above it.
func (o *owner) reaches(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return false
		}
		mode, search := info.Mode().Perm(), os.FileMode(0o001)
		switch {
		case st.Uid == o.cred.Uid:
			search = 0o100
		case st.Gid == o.cred.Gid:
			search = 0o010
		}
		if mode&search == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
		dir = filepath.Dir(dir)
	}
}
