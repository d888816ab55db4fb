package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/tranship-io/tranship/api/server"
	"github.com/tranship-io/tranship/control"
)

// Run serves until the context ends, then hands over what its workers do and
// stops. The error is why it could not begin, or could not stop cleanly.
func Run(ctx context.Context, c Config) (err error) {
	c.defaults()
	limitMemory(&c)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	door := &door{}
	listening := &http.Server{
		Handler: door, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- listening.Serve(listener) }()
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if listening.Shutdown(closing) != nil {
			_ = listening.Close() // waits for facts may last longer
		}
		if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("serve on %s: %w", c.Listen, serr))
		}
	}()

	p, err := begin(ctx, &c)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	door.open(p.handler)
	// Migration and wiring need memory that an idle process does not.
	debug.FreeOSMemory()
	address := listener.Addr().String()
	c.Log.InfoContext(ctx, "serving", "address", address, "workers", c.Workers, "lease", c.Lease, "holder", p.holder)
	if c.Ready != nil {
		c.Ready(address)
	}
	select {
	case <-ctx.Done():
	case serr := <-served:
		served <- serr
	}
	c.Log.InfoContext(ctx, "stopping: attempts hand over at their next safe positions", "grace", c.Grace)
	return p.end(context.WithoutCancel(ctx))
}

// door answers 503 until the process is ready.
type door struct{ handler atomic.Pointer[http.Handler] }

func (d *door) open(h http.Handler) { d.handler.Store(&h) }

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := d.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	server.Starting(w, r)
}

// limitMemory tells Go's collector the bound that the attempts add up to, with
// what API and control loops need. GOMEMLIMIT in the environment wins.
func limitMemory(c *Config) {
	if _, set := c.Lookup("GOMEMLIMIT"); set || c.Workers < 0 {
		return
	}
	const rest = 96 << 20
	n := int64(c.Workers)
	if c.Memory > (math.MaxInt64-rest)/n {
		return
	}
	debug.SetMemoryLimit(n*c.Memory + rest)
}

// holderName names this process in leases, unlike any other before it.
func holderName(id string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "local"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), id)
}

// reachable calls do until the database answers.
func reachable(ctx context.Context, log *slog.Logger, do func() error) error {
	for {
		err := do()
		var away *control.UnavailableError
		if !errors.As(err, &away) {
			return err
		}
		log.WarnContext(ctx, "the database cannot be reached", "error", err)
		t := time.NewTimer(max(away.RetryAfter, time.Second))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}
