//go:build linux

package pgconf

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func promptPair(t *testing.T) (ours net.Conn, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	peer, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = conn.Close(), peer.Close() })
	ours = prompt(conn)
	require.IsType(t, &promptConn{}, ours)
	return ours, peer.(*net.TCPConn)
}

func TestPromptPassesEverything(t *testing.T) {
	t.Parallel()
	ours, theirs := promptPair(t)
	sent := make([]byte, 20<<20) // more than the kernel takes at once
	_, _ = rand.Read(sent)
	go func() { _, _ = io.Copy(theirs, theirs); _ = theirs.CloseWrite() }()
	go func() {
		n, err := ours.Write(sent)
		if err == nil && n == len(sent) {
			_ = ours.(*promptConn).Conn.(*net.TCPConn).CloseWrite()
		}
	}()
	got, err := io.ReadAll(ours)
	require.NoError(t, err)
	require.True(t, bytes.Equal(sent, got))
	n, err := ours.Read(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = ours.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, io.EOF)
}

func TestPromptEnds(t *testing.T) {
	t.Parallel()
	ours, theirs := promptPair(t)
	require.NoError(t, ours.SetDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := ours.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = ours.Write(make([]byte, 20<<20)) // nobody reads
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, ours.SetDeadline(time.Time{}))

	// Closed with unread data, the peer resets the connection.
	require.NoError(t, theirs.SetLinger(0))
	require.NoError(t, theirs.Close())
	_, err = ours.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = ours.Write([]byte("x"))
	require.ErrorIs(t, err, syscall.EPIPE)
	var op *net.OpError
	require.ErrorAs(t, err, &op)

	require.NoError(t, ours.Close())
	_, err = ours.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
}
