//go:build !linux

package pgconf

import (
	"net"
	"syscall"
	"time"
)

// setTCPUserTimeout has no portable form; keepalives do what they can.
func setTCPUserTimeout(syscall.RawConn, time.Duration) error { return nil }

// prompt has no portable form.
func prompt(conn net.Conn) net.Conn { return conn }
