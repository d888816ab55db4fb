//go:build !linux

package pgconf

import (
	"syscall"
	"time"
)

// setTCPUserTimeout has no portable form; keepalives do what they can.
func setTCPUserTimeout(syscall.RawConn, time.Duration) error { return nil }
