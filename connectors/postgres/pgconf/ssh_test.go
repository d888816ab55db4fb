package pgconf_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// sshServer forwards TCP connections for a user with a key.
type sshServer struct {
	addr string
	host ssh.Signer
}

func newSSHServer(t *testing.T, user string, key ssh.PublicKey) *sshServer {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	host, err := ssh.NewSignerFromKey(priv)
	require.NoError(t, err)
	cfg := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if c.User() == user && bytes.Equal(k.Marshal(), key.Marshal()) {
			return nil, nil
		}
		return nil, io.EOF
	}}
	cfg.AddHostKey(host)
	s := &sshServer{host: host}
	s.addr = listen(t, func(c net.Conn) { go serveSSH(c, cfg) })
	return s
}

func serveSSH(c net.Conn, cfg *ssh.ServerConfig) {
	conn, channels, requests, err := ssh.NewServerConn(c, cfg)
	if err != nil {
		_ = c.Close()
		return
	}
	defer func() { _ = conn.Close() }()
	go ssh.DiscardRequests(requests)
	for ch := range channels {
		var to struct {
			Host       string
			Port       uint32
			OriginHost string
			OriginPort uint32
		}
		if ch.ChannelType() != "direct-tcpip" || ssh.Unmarshal(ch.ExtraData(), &to) != nil {
			_ = ch.Reject(ssh.UnknownChannelType, "no")
			continue
		}
		out, err := net.Dial("tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
		if err != nil {
			_ = ch.Reject(ssh.ConnectionFailed, "no way")
			continue
		}
		in, reqs, err := ch.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
	}
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	raw := pgtest.NewDatabase(t, pgtest.Shared(t))
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	sshPub, err := ssh.NewPublicKey(pub)
	require.NoError(t, err)
	server := newSSHServer(t, "hopper", sshPub)
	dir := t.TempDir()
	keyFile, lockedFile := filepath.Join(dir, "id"), filepath.Join(dir, "locked")
	block, err := ssh.MarshalPrivateKey(priv, "")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(block), 0o600))
	block, err = ssh.MarshalPrivateKeyWithPassphrase(priv, "", []byte("key-secret"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(lockedFile, pem.EncodeToMemory(block), 0o600))
	known, empty := filepath.Join(dir, "known"), filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(known, []byte(knownhosts.Line([]string{server.addr}, server.host.PublicKey())+"\n"), 0o600))
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	host, portText, err := net.SplitHostPort(server.addr)
	require.NoError(t, err)
	port, err := strconv.Atoi(portText)
	require.NoError(t, err)
	tunnel := func(change func(*pgconf.SSH)) *pgconf.Config {
		s := &pgconf.SSH{Host: host, Port: port, User: "hopper", KeyFile: keyFile, KnownHosts: known}
		change(s)
		return &pgconf.Config{URL: raw, SSH: s, ConnectTimeout: pgconf.Duration(time.Minute)}
	}
	conn := must(t, tunnel(func(*pgconf.SSH) {}))
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err = conn.Exec(ctx, "SELECT pg_sleep(30)")
	require.ErrorIs(t, err, context.DeadlineExceeded, "deadlines work through a tunnel")

	direct := must(t, &pgconf.Config{URL: raw})
	second := must(t, tunnel(func(*pgconf.SSH) {}))
	done := make(chan error, 1)
	go func() {
		_, err := second.Exec(context.Background(), "SELECT pg_sleep(30)")
		done <- err
	}()
	require.Eventually(t, func() bool {
		var n int
		err := direct.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)' AND state = 'active' AND pid = $1", second.PgConn().PID()).Scan(&n)
		return err == nil && n == 1
	}, 5*time.Second, 20*time.Millisecond)
	require.NoError(t, second.PgConn().CancelRequest(context.Background()), "cancel requests go through the tunnel")
	require.True(t, pgconf.IsState(<-done, "57014"))

	for name, c := range map[string]struct {
		change func(*pgconf.SSH)
		class  engine.Class
		want   string
	}{
		"unknown host key": {func(s *pgconf.SSH) { s.KnownHosts = empty }, engine.Permanent, "not in the known_hosts file"},
		"wrong user":       {func(s *pgconf.SSH) { s.User = "nobody" }, engine.Permanent, "check the ssh user"},
		"locked key":       {func(s *pgconf.SSH) { s.KeyFile = lockedFile }, engine.Permanent, "protected by a password"},
		"no way to log in": {func(s *pgconf.SSH) { s.KeyFile = "" }, engine.Permanent, "no way to log in"},
		"no key file":      {func(s *pgconf.SSH) { s.KeyFile = "/no/such/key" }, engine.Permanent, "read ssh key"},
		"nothing listens":  {func(s *pgconf.SSH) { s.Port = 1 }, engine.Retryable, "ssh tunnel through"},
	} {
		_, err := connect(tunnel(c.change), time.Millisecond)
		require.Error(t, err, name)
		require.Equal(t, c.class, engine.ClassOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, c.want, name)
		require.NotContains(t, err.Error(), "key-secret")
	}
	must(t, tunnel(func(s *pgconf.SSH) { s.KeyFile, s.KeyPassword = lockedFile, "key-secret" }))
	closed := tunnel(func(*pgconf.SSH) {})
	closed.URL = with(t, raw, func(u *url.URL) { u.Host = "127.0.0.1:1" })
	_, err = connect(closed, time.Millisecond)
	require.Equal(t, engine.Retryable, engine.ClassOf(err))
	require.ErrorContains(t, err, "as seen from the SSH server")
}
