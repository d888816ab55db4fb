//go:build !linux

package pgsource

import (
	"net"
	"time"
)

const (
	gatherBytes = 64 << 10
	gatherTime  = 10 * time.Millisecond
)

// gatherer does nothing where the kernel does not collect data for a reader.
type gatherer struct{ on bool }

func newGatherer(net.Conn) *gatherer { return &gatherer{} }

func (*gatherer) set(bool) {}
