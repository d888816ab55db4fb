package pgconf

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// promptConn is a socket whose reads and writes keep the processor. They never
// block, since the runtime's sockets don't; but announced to the scheduler as
// ordinary system calls they wake its monitor, which takes the processor away
// from each that copies for long and starts another thread in its place. With
// rows passing by the buffer, that cost more than the copying.
type promptConn struct {
	net.Conn
	raw syscall.RawConn
}

// prompt returns conn with prompt reads and writes, if it is a plain socket.
func prompt(conn net.Conn) net.Conn {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		if c, ok := conn.(syscall.Conn); ok {
			if raw, err := c.SyscallConn(); err == nil {
				return &promptConn{Conn: conn, raw: raw}
			}
		}
	}
	return conn
}

// SyscallConn implements syscall.Conn.
func (c *promptConn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// Read implements net.Conn.
func (c *promptConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	var n int
	var errno syscall.Errno
	err := c.raw.Read(func(fd uintptr) bool {
		n, errno = transfer(syscall.SYS_READ, fd, p)
		return errno != syscall.EAGAIN
	})
	switch {
	case err != nil:
		return 0, err
	case errno != 0:
		return 0, c.failure("read", errno)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (c *promptConn) Write(p []byte) (int, error) {
	var sent int
	var errno syscall.Errno
	err := c.raw.Write(func(fd uintptr) bool {
		for sent < len(p) {
			var n int
			if n, errno = transfer(syscall.SYS_WRITE, fd, p[sent:]); errno != 0 {
				return errno != syscall.EAGAIN
			}
			sent += n
		}
		return true
	})
	if err == nil && errno != 0 {
		err = c.failure("write", errno)
	}
	return sent, err
}

func (c *promptConn) failure(op string, errno syscall.Errno) error {
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, errno)}
}

// transfer reads into p or writes from it, without a word to the scheduler.
func transfer(call, fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))) //nolint:gosec // a system call takes an address
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
