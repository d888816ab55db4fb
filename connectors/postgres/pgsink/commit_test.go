package pgsink

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

// proxy passes a session through and cuts it when the client sends COMMIT inside
// a transaction that was armed: before the server sees it, or before its answer
// comes back.
type proxy struct {
	addr   string
	server string
	// mode: 0 pass, 1 drop the COMMIT, 2 drop its answer, after pass others.
	mode, pass atomic.Int32
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p := &proxy{addr: l.Addr().String(), server: server}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	end := func() { _, _ = client.Close(), server.Close() }
	var silent atomic.Bool
	go func() {
		defer end()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if silent.Load() {
				// Leave the server time to commit, and the client without an answer.
				time.Sleep(200 * time.Millisecond)
				return
			}
			if n > 0 {
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer end()
	buf := make([]byte, 64<<10)
	commit, _ := (&pgproto3.Query{String: "COMMIT"}).Encode(nil)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			if strings.Contains(string(buf[:n]), string(commit)) && p.mode.Load() != 0 && p.pass.Add(-1) < 0 {
				if p.mode.Swap(0) == 1 {
					return
				}
				silent.Store(true)
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if silent.Load() {
				time.Sleep(time.Second)
			}
			return
		}
	}
}

func TestLostAnswerToTheCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode    int32
		applied bool
	}{"the commit got lost": {1, false}, "the answer got lost": {2, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			res := simple(b, 100)
			at := strings.Index(b.to, "@")
			host := b.to[at+1 : at+strings.Index(b.to[at:], "/")]
			px := newProxy(t, host)
			s := b.open(strings.Replace(b.to, host, px.addr, 1))
			p := b.start(s, job{resource: res, write: engine.WriteAppend, verify: engine.VerifyCounts})
			split := p.plan.Source.Splits[0].ID
			_, err := s.Claim(b.ctx, p.Target, split, 1)
			require.NoError(t, err)
			px.pass.Store(0)
			px.mode.Store(c.mode)
			_, err = s.Apply(b.ctx, epoch(p, split, 1, 1, true, b.rows(p, "", 10)))
			require.ErrorIs(t, err, engine.ErrCommitUnknown)
			require.Equal(t, engine.Retryable, engine.ClassOf(err))

			// P4: the ledger, and nothing else, tells what happened.
			entry, err := s.Claim(b.ctx, p.Target, split, 2)
			require.NoError(t, err)
			require.Equal(t, c.applied, entry.Done)
			if !c.applied {
				_, err = s.Apply(b.ctx, epoch(p, split, 2, 1, true, b.rows(p, "", 10)))
				require.NoError(t, err)
			}
			require.EqualValues(t, 100, b.count(b.dst, "SELECT count(*) FROM t"))

			px.pass.Store(1) // the claim's own commit
			px.mode.Store(c.mode)
			pub := b.publication(p, 1)
			pub.Totals.Applied = 100
			_, err = s.Publish(b.ctx, pub)
			require.ErrorIs(t, err, engine.ErrCommitUnknown)
			pub.Claim = 2
			r, err := s.Publish(b.ctx, pub)
			require.NoError(t, err)
			require.Equal(t, c.applied, r.AlreadyDone)
		})
	}
}
