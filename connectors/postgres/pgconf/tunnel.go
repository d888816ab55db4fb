package pgconf

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// tunnel is a connection through an SSH server that takes its SSH connection down
// with it. SSH channels have no deadlines, and one on the carrier would also end
// a tunnel that merely nobody reads from; so a deadline that passes during a call
// closes the carrier, and the call returns os.ErrDeadlineExceeded.
type tunnel struct {
	net.Conn
	client      *ssh.Client
	addr        string
	read, write deadline
}

func newTunnel(inner net.Conn, client *ssh.Client, raw net.Conn, addr string) *tunnel {
	t := &tunnel{Conn: inner, client: client, addr: addr}
	end := func() { _ = raw.Close() }
	t.read.end, t.write.end = end, end
	return t
}

// RemoteAddr is where the tunnel ends, so that a cancel request finds the server.
func (t *tunnel) RemoteAddr() net.Addr { return tunnelAddr(t.addr) }

type tunnelAddr string

func (tunnelAddr) Network() string  { return "tcp" }
func (a tunnelAddr) String() string { return string(a) }

func (t *tunnel) Read(b []byte) (int, error) {
	return t.read.during(func() (int, error) { return t.Conn.Read(b) })
}
func (t *tunnel) Write(b []byte) (int, error) {
	return t.write.during(func() (int, error) { return t.Conn.Write(b) })
}

func (t *tunnel) Close() error {
	err := t.Conn.Close()
	if closed := t.client.Close(); !errors.Is(closed, net.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

func (t *tunnel) SetDeadline(d time.Time) error {
	t.read.set(d)
	t.write.set(d)
	return nil
}

func (t *tunnel) SetReadDeadline(d time.Time) error  { t.read.set(d); return nil }
func (t *tunnel) SetWriteDeadline(d time.Time) error { t.write.set(d); return nil }

// deadline bounds calls of one direction.
type deadline struct {
	end func()

	mu     sync.Mutex
	at     time.Time
	timer  *time.Timer
	calls  int
	passed bool
}

// set moves the deadline, also for a call in progress.
func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	d.arm()
}

// arm starts or stops the timer; the caller holds the lock.
func (d *deadline) arm() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.calls > 0 && !d.at.IsZero() {
		at := d.at
		d.timer = time.AfterFunc(time.Until(at), func() { d.fire(at) })
	}
}

func (d *deadline) fire(at time.Time) {
	d.mu.Lock()
	due := d.calls > 0 && d.at.Equal(at)
	d.passed = d.passed || due
	d.mu.Unlock()
	if due {
		d.end()
	}
}

func (d *deadline) during(call func() (int, error)) (int, error) {
	d.mu.Lock()
	if d.passed || (!d.at.IsZero() && !time.Now().Before(d.at)) {
		d.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	}
	d.calls++
	d.arm()
	d.mu.Unlock()
	n, err := call()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls--
	if d.calls == 0 && d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if err != nil && d.passed {
		return n, os.ErrDeadlineExceeded
	}
	return n, err
}
