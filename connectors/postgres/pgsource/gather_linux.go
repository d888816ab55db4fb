package pgsource

import (
	"net"
	"syscall"
	"time"
)

const (
	// gatherBytes is how much the kernel collects before it wakes a reader. The
	// server sends 8 KiB at a time: woken for each, a reader spends more on
	// waking up than on the rows.
	gatherBytes = 64 << 10
	// gatherTime bounds the wait for the rest of it, so that the end of a result
	// and a slow server are delayed by no more.
	gatherTime = 10 * time.Millisecond
)

// gatherer makes the kernel collect data before it wakes the reader.
type gatherer struct {
	raw syscall.RawConn
	on  bool
}

// newGatherer returns one that does nothing for connections that are no plain
// sockets: what TLS reads is not what the kernel has.
func newGatherer(conn net.Conn) *gatherer {
	g := &gatherer{}
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			g.raw = raw
		}
	}
	return g
}

// set switches collecting on or off; a kernel that refuses is asked no more.
func (g *gatherer) set(on bool) {
	if g.raw == nil || g.on == on {
		return
	}
	low := 1
	if on {
		low = gatherBytes
	}
	var set error
	err := g.raw.Control(func(fd uintptr) { set = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, low) })
	if err != nil || set != nil {
		g.raw, on = nil, false
	}
	g.on = on
}
