//go:build unix

package embedpg

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// owner is the user that runs the server. A nil owner is the current user.
type owner struct {
	name string
	cred *syscall.Credential
}

// serverOwner finds an unprivileged user when the process is root. initdb needs
// a user that the system knows by name, so a bare number would not do.
func serverOwner() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"nobody", "daemon"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil || uid == 0 {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &owner{name: name, cred: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return nil, fmt.Errorf("the process is root, and no user nobody or daemon exists to run PostgreSQL as")
}

// chown gives a path to the server's user.
func (o *owner) chown(path string) error {
	if o == nil {
		return nil
	}
	return os.Lchown(path, int(o.cred.Uid), int(o.cred.Gid))
}

// command prepares a program that runs as the server's user, in a process group
// of its own so that a terminal's interrupt does not reach it.
func (o *owner) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...) // the server outlives the caller's context
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if o != nil {
		cmd.SysProcAttr.Credential = o.cred
	}
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"LANG=C.UTF-8",
		"TZ=UTC",
	}
	return cmd
}
