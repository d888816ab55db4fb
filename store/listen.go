package store

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
)

// HintArmed: work was made out of nothing; whoever sleeps wakes up (P23).
const HintArmed HintKind = "armed"

// keepalive finds a connection whose other end is gone: after a minute at the latest.
var keepalive = net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 10 * time.Second, Count: 4}

// Listen passes hints on until the context ends, on a connection of its own that
// sends nothing while there are none. Hints can be lost with the connection:
// connected is called each time that there is a new one, and then everything has
// to be looked at (P25).
func (d *DB) Listen(ctx context.Context, connected func(), hint func(Hint)) {
	wait := &backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, Multiplier: 2, RandomizationFactor: 0.5, MaxInterval: 5 * time.Second}
	for ctx.Err() == nil {
		err := d.listenOnce(ctx, func() {
			wait.Reset()
			connected()
		}, hint)
		if ctx.Err() != nil {
			return
		}
		d.log.WarnContext(ctx, "the connection for hints was lost", "error", err)
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
		}
	}
}

func (d *DB) listenOnce(ctx context.Context, connected func(), hint func(Hint)) error {
	config := d.app.Config().ConnConfig
	dialer := &net.Dialer{Timeout: config.ConnectTimeout, KeepAliveConfig: keepalive}
	config.DialFunc = dialer.DialContext
	if err := d.logIn(ctx, config); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "listen "+hintChannel); err != nil {
		return err
	}
	connected()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		var h Hint
		if json.Unmarshal([]byte(n.Payload), &h) == nil {
			hint(h)
		}
	}
}
