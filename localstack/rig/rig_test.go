package rig_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/localstack/rig"
)

// holderEnv makes this test binary start a core, print where it is, and hang, so
// that TestCoreDiesWithItsProcess can kill it.
const holderEnv = "TRANSHIP_RIG_HOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderEnv); dir != "" {
		core, err := rig.Start(context.Background(), rig.Config{Dir: dir})
		if err != nil {
			panic(err)
		}
		println(core.Pid())
		select {}
	}
	rig.Main(m)
}

func TestCoreListensOnLoopbackOnlyAndStops(t *testing.T) {
	t.Parallel()
	core := rig.StartT(t, rig.Config{})
	sockets, err := listening(core.Pid())
	require.NoError(t, err)
	require.Equal(t, []string{strings.TrimPrefix(core.Endpoint(), "http://")}, sockets)

	pid := core.Pid()
	require.NoError(t, core.Stop())
	require.NoError(t, core.Stop(), "stopping twice is fine")
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	_, err = os.Stat(core.LogPath())
	require.ErrorIs(t, err, fs.ErrNotExist, "temporary files are removed")
}

func TestCoreDiesWithItsProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+t.TempDir())
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscan(line, &pid)
	require.NoError(t, err, line)

	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	require.Eventually(t, func() bool {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}, time.Minute, 100*time.Millisecond)
}

// listening lists the TCP addresses that a process listens on, from the kernel.
func listening(pid int) ([]string, error) {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, fd := range fds {
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())); err == nil {
			own[target] = true
		}
	}
	var found []string
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		for _, line := range strings.Split(string(text), "\n")[1:] {
			const listen = "0A"
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[3] != listen || !own["socket:["+fields[9]+"]"] {
				continue
			}
			address, err := parseAddress(fields[1])
			if err != nil {
				return nil, err
			}
			found = append(found, address)
		}
	}
	return found, nil
}

// parseAddress reads 0100007F:1F90, an address in the kernel's byte order.
func parseAddress(text string) (string, error) {
	host, port, _ := strings.Cut(text, ":")
	if len(host) != 8 {
		return text, nil // IPv6, shown as it is
	}
	var b [4]byte
	var p int
	if _, err := fmt.Sscanf(host, "%02X%02X%02X%02X", &b[3], &b[2], &b[1], &b[0]); err != nil {
		return "", err
	}
	if _, err := fmt.Sscanf(port, "%X", &p); err != nil {
		return "", err
	}
	return net.JoinHostPort(net.IP(b[:]).String(), fmt.Sprint(p)), nil
}
