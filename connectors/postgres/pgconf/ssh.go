package pgconf

import (
	"context"
	"errors"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/tranship-io/tranship/engine"
)

// dial opens a tunnel of its own for one connection, so that a broken tunnel
// breaks one session only, and nothing is shared that would have to be cleaned up.
func (s *SSH) dial(ctx context.Context, d *net.Dialer, addr string) (net.Conn, error) {
	cfg, closeAgent, err := s.clientConfig(ctx, d)
	if err != nil {
		return nil, err
	}
	defer closeAgent()
	port := s.Port
	if port == 0 {
		port = 22
	}
	via := net.JoinHostPort(s.Host, strconv.Itoa(port))
	raw, err := d.DialContext(ctx, "tcp", via)
	if err != nil {
		return nil, &sshError{host: via, err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	conn, chans, reqs, err := ssh.NewClientConn(raw, via, cfg)
	if err != nil {
		_ = raw.Close()
		return nil, s.explain(via, err)
	}
	client := ssh.NewClient(conn, chans, reqs)
	inner, err := client.DialContext(ctx, "tcp", addr)
	if err != nil {
		_ = client.Close()
		var refused *ssh.OpenChannelError
		if errors.As(err, &refused) {
			// The database may be starting; the tunnel itself works.
			return nil, &engine.Error{Class: engine.Retryable,
				Hint: "check host and port as seen from the SSH server, and that it allows TCP forwarding",
				Err:  &sshError{host: via, err: err}}
		}
		return nil, &sshError{host: via, err: err}
	}
	return newTunnel(inner, client, raw, addr), nil
}

// sshError says that it was the tunnel.
type sshError struct {
	host string
	err  error
}

func (e *sshError) Error() string { return "ssh tunnel through " + e.host + ": " + e.err.Error() }
func (e *sshError) Unwrap() error { return e.err }

func (s *SSH) explain(via string, err error) error {
	var key *knownhosts.KeyError
	if errors.As(err, &key) {
		if len(key.Want) == 0 {
			return engine.Permanentf("add its key to the known_hosts file, for example with ssh-keyscan, after checking its fingerprint",
				"ssh tunnel through %s: the host's key is not in the known_hosts file", via)
		}
		return engine.Permanentf("somebody may be in between; if the host was reinstalled, replace its line",
			"ssh tunnel through %s: the host's key differs from the known_hosts file", via)
	}
	var netErr net.Error
	if errors.As(err, &netErr) {
		return &sshError{host: via, err: err}
	}
	return &engine.Error{Class: engine.Permanent, Hint: "check the ssh user, key file, password or agent", Err: &sshError{host: via, err: err}}
}

func (s *SSH) clientConfig(ctx context.Context, d *net.Dialer) (*ssh.ClientConfig, func(), error) {
	closeAgent := func() {}
	cfg := &ssh.ClientConfig{User: s.User}
	home, homeErr := os.UserHomeDir()
	if cfg.User == "" {
		if u, err := user.Current(); err == nil {
			cfg.User = u.Username
		}
	}
	if s.KeyFile != "" {
		signer, err := s.signer()
		if err != nil {
			return nil, closeAgent, err
		}
		cfg.Auth = append(cfg.Auth, ssh.PublicKeys(signer))
	}
	if s.Agent {
		conn, err := d.DialContext(ctx, "unix", os.Getenv("SSH_AUTH_SOCK"))
		if err != nil {
			return nil, closeAgent, engine.Permanentf("start an SSH agent, or name a key_file", "ssh agent at SSH_AUTH_SOCK does not answer: %w", err)
		}
		closeAgent = func() { _ = conn.Close() }
		cfg.Auth = append(cfg.Auth, ssh.PublicKeysCallback(agent.NewClient(conn).Signers))
	}
	if s.Password != "" {
		cfg.Auth = append(cfg.Auth, ssh.Password(s.Password))
	}
	if len(cfg.Auth) == 0 {
		return nil, closeAgent, engine.Permanentf("set key_file, agent or password", "ssh has no way to log in")
	}
	known := s.KnownHosts
	if known == "" {
		if homeErr != nil {
			return nil, closeAgent, engine.Permanentf("set known_hosts", "ssh has no known_hosts file: there is no home folder")
		}
		known = filepath.Join(home, ".ssh", "known_hosts")
	}
	check, err := knownhosts.New(known)
	if err != nil {
		return nil, closeAgent, engine.Permanentf("the SSH server's key is checked against it", "read ssh known_hosts: %w", err)
	}
	cfg.HostKeyCallback = check
	return cfg, closeAgent, nil
}

func (s *SSH) signer() (ssh.Signer, error) {
	b, err := os.ReadFile(s.KeyFile)
	if err != nil {
		return nil, engine.Permanentf("", "read ssh key: %w", err)
	}
	var signer ssh.Signer
	if s.KeyPassword != "" {
		signer, err = ssh.ParsePrivateKeyWithPassphrase(b, []byte(s.KeyPassword))
	} else {
		signer, err = ssh.ParsePrivateKey(b)
	}
	if err != nil {
		var missing *ssh.PassphraseMissingError
		if errors.As(err, &missing) {
			return nil, engine.Permanentf("set key_password, or use the agent", "ssh key %s is protected by a password", s.KeyFile)
		}
		return nil, engine.Permanentf("", "read ssh key %s: %w", s.KeyFile, err)
	}
	return signer, nil
}
