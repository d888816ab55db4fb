package pgconf

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func setTCPUserTimeout(raw syscall.RawConn, d time.Duration) error {
	var setErr error
	err := raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(millis(d)))
	})
	if err != nil {
		return err
	}
	return setErr
}
