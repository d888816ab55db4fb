package pgconf

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// dialer reaches the server, through a tunnel or not, and remembers how far it came.
type dialer struct {
	cfg *Config
	// reached is true once some connection to the server's port was made, so
	// that a later failure is not blamed on the network.
	reached atomic.Bool
}

// install replaces how pgx resolves and dials.
func (d *dialer) install(pc *pgx.ConnConfig) {
	pc.DialFunc = d.dial
	if d.cfg.SSH != nil {
		// The name means something on the other side of the tunnel only.
		pc.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var conn net.Conn
	var err error
	if d.cfg.SSH != nil && network != "unix" {
		conn, err = d.cfg.SSH.dial(ctx, d.netDialer(), addr)
	} else {
		conn, err = d.netDialer().DialContext(ctx, network, addr)
	}
	if err != nil {
		return nil, err
	}
	d.reached.Store(true)
	return prompt(conn), nil
}

// netDialer notices a peer that is gone: by keepalives when the connection is
// idle, by TCP_USER_TIMEOUT when sent data is not acknowledged (P5).
func (d *dialer) netDialer() *net.Dialer {
	timeout := d.cfg.TCPUserTimeout.or(DefaultTCPUserTimeout)
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3},
		Control: func(network, _ string, raw syscall.RawConn) error {
			if network == "unix" {
				return nil
			}
			return setTCPUserTimeout(raw, timeout)
		},
	}
}
