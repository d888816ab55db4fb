package pgconf_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const runID = "0192f0c1-2222-7333-8444-55556666abcd"

func connect(cfg *pgconf.Config, giveUp time.Duration) (*pgx.Conn, error) {
	return pgconf.Connect(context.Background(), cfg, engine.OpenOptions{RunID: runID, GiveUp: giveUp}, pgconf.Role{Name: "public.t/1", Claim: 7})
}

func must(t *testing.T, cfg *pgconf.Config) *pgx.Conn {
	t.Helper()
	conn, err := connect(cfg, 10*time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func show(t *testing.T, conn *pgx.Conn, name string) string {
	t.Helper()
	var v string
	require.NoError(t, conn.QueryRow(context.Background(), "SELECT current_setting($1)", name).Scan(&v))
	return v
}

// with returns the URL with something changed.
func with(t *testing.T, raw string, change func(u *url.URL)) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	change(u)
	return u.String()
}

func TestSessionSettings(t *testing.T) {
	t.Parallel()
	raw := pgtest.NewDatabase(t, pgtest.Shared(t))
	admin := must(t, &pgconf.Config{URL: raw})
	db := admin.Config().Database
	for _, set := range []string{"datestyle = 'German'", "timezone = 'Asia/Tokyo'", "extra_float_digits = 0", "bytea_output = escape",
		"intervalstyle = iso_8601", "statement_timeout = '7s'", "lock_timeout = '1s'", "standard_conforming_strings = off", "search_path = odd", "lc_monetary = 'C.UTF-8'"} {
		_, err := admin.Exec(context.Background(), "ALTER DATABASE "+pgconf.QuoteIdent(db)+" SET "+set)
		require.NoError(t, err)
	}
	conn := must(t, &pgconf.Config{URL: with(t, raw, func(u *url.URL) {
		u.RawQuery = "sslmode=disable&work_mem=5MB&application_name=mine&options=-c%20geqo%3Doff"
	}), LockTimeout: pgconf.Duration(3 * time.Second)})
	for name, want := range map[string]string{
		"DateStyle": "ISO, YMD", "TimeZone": "UTC", "extra_float_digits": "3", "bytea_output": "hex", "IntervalStyle": "postgres", "lc_monetary": "C",
		"statement_timeout": "0", "lock_timeout": "3s", "standard_conforming_strings": "on", "client_encoding": "UTF8",
		"idle_in_transaction_session_timeout": "10min", "application_name": "tranship/6666abcd/public.t/1/7",
		"search_path": "odd", "work_mem": "5MB", "geqo": "off",
	} {
		require.Equal(t, want, show(t, conn, name), name)
	}
	require.Positive(t, pgconf.ServerVersion(conn))
	id, err := pgconf.Identity(context.Background(), conn)
	require.NoError(t, err)
	require.Regexp(t, `^postgres:\d+/`+db+`$`, id)
	again, err := pgconf.Identity(context.Background(), must(t, &pgconf.Config{URL: raw}))
	require.NoError(t, err)
	require.Equal(t, id, again)
}

func TestPartsServiceAndPasswordFile(t *testing.T) {
	t.Parallel()
	raw := pgtest.NewDatabase(t, pgtest.Shared(t))
	u, err := url.Parse(raw)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	pass, _ := u.User.Password()
	user, db := u.User.Username(), strings.TrimPrefix(u.Path, "/")
	dir := t.TempDir()
	passfile, service := filepath.Join(dir, "pass"), filepath.Join(dir, "services")
	require.NoError(t, os.WriteFile(passfile, fmt.Appendf(nil, "127.0.0.1:%d:*:%s:%s\n", port, user, pass), 0o600))
	require.NoError(t, os.WriteFile(service, fmt.Appendf(nil, "[shop]\nhost=127.0.0.1\nport=%d\nuser=%s\ndbname=%s\n", port, user, db), 0o600))

	for name, cfg := range map[string]*pgconf.Config{
		"parts":         {Host: "127.0.0.1", Port: port, User: user, Password: pass, Database: db, SSLMode: "disable"},
		"password file": {Host: "127.0.0.1", Port: port, User: user, Database: db, PassFile: passfile},
		"service":       {Service: "shop", ServiceFile: service, PassFile: passfile},
		"url and file":  {URL: with(t, raw, func(u *url.URL) { u.User = url.User(user) }), PassFile: passfile},
		"keywords":      {URL: fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=%s", port, user, db), Password: pass},
	} {
		require.NoError(t, cfg.Validate(), name)
		conn := must(t, cfg)
		require.Equal(t, db, conn.Config().Database, name)
	}
	odd := `p'a\s s&=#?`
	admin := must(t, &pgconf.Config{URL: raw})
	role := "odd_" + strings.ToLower(rand.Text()[:8])
	_, err = admin.Exec(context.Background(), "CREATE ROLE "+role+" LOGIN PASSWORD "+pgconf.QuoteLiteral(odd))
	require.NoError(t, err)
	defer func() { _, _ = admin.Exec(context.Background(), "DROP ROLE "+role) }()
	conn, err := connect(&pgconf.Config{Host: "127.0.0.1", Port: port, User: role, Password: odd, Database: db}, time.Second)
	require.NoError(t, err)
	require.NoError(t, conn.Close(context.Background()))
	conn, err = connect(&pgconf.Config{URL: with(t, raw, func(u *url.URL) { u.User = url.User(role) }), Password: odd}, time.Second)
	require.NoError(t, err)
	require.NoError(t, conn.Close(context.Background()))
}

// Each failure says what is wrong, has the right class, and shows no secret.
func TestDiagnoses(t *testing.T) {
	t.Parallel()
	const secret = "top-secret-9"
	raw := pgtest.NewDatabase(t, pgtest.Shared(t))
	raw = with(t, raw, func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), secret) })
	good := pgtest.Shared(t).URL("postgres")
	admin := must(t, &pgconf.Config{URL: good})
	role := "walled_" + strings.ToLower(rand.Text()[:8])
	_, err := admin.Exec(context.Background(), "CREATE ROLE "+role+" LOGIN PASSWORD '"+secret+"'; ")
	require.NoError(t, err)
	defer func() { _, _ = admin.Exec(context.Background(), "DROP ROLE "+role) }()
	walled := must(t, &pgconf.Config{URL: pgtest.NewDatabase(t, pgtest.Shared(t))})
	_, err = walled.Exec(context.Background(), "REVOKE CONNECT ON DATABASE "+pgconf.QuoteIdent(walled.Config().Database)+" FROM PUBLIC")
	require.NoError(t, err)
	ascii := "ascii_" + strings.ToLower(rand.Text()[:8])
	_, err = admin.Exec(context.Background(), "CREATE DATABASE "+ascii+" TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
	require.NoError(t, err)
	defer func() { _, _ = admin.Exec(context.Background(), "DROP DATABASE "+ascii) }()
	silent := listen(t, func(net.Conn) {})
	closing := listen(t, func(c net.Conn) { _ = c.Close() })
	for name, c := range map[string]struct {
		cfg   pgconf.Config
		class engine.Class
		want  string
	}{
		"host":     {pgconf.Config{URL: with(t, raw, func(u *url.URL) { u.Host = "no-such-host.invalid" })}, engine.Permanent, `host "no-such-host.invalid"`},
		"port":     {pgconf.Config{URL: with(t, raw, func(u *url.URL) { u.Host = "127.0.0.1:1" })}, engine.Retryable, "nothing listens at 127.0.0.1:1"},
		"socket":   {pgconf.Config{Host: "/no/such/folder", Password: secret}, engine.Permanent, "no socket at /no/such/folder"},
		"silence":  {pgconf.Config{URL: with(t, raw, func(u *url.URL) { u.Host = silent }), ConnectTimeout: pgconf.Duration(200 * time.Millisecond)}, engine.Retryable, "does not answer like PostgreSQL"},
		"breaks":   {pgconf.Config{URL: with(t, raw, func(u *url.URL) { u.Host = closing; u.RawQuery = "sslmode=disable" })}, engine.Retryable, "the connection broke"},
		"password": {pgconf.Config{URL: raw}, engine.Permanent, "the password of role"},
		"role":     {pgconf.Config{URL: with(t, raw, func(u *url.URL) { u.User = url.UserPassword("nobody_here", secret) })}, engine.Permanent, "nobody_here"},
		"database": {pgconf.Config{URL: with(t, good, func(u *url.URL) { u.Path = "/nothing" })}, engine.Permanent, `database "nothing" does not exist`},
		"connect right": {pgconf.Config{URL: with(t, good, func(u *url.URL) {
			u.Path, u.User = "/"+walled.Config().Database, url.UserPassword(role, secret)
		})}, engine.Permanent, "GRANT CONNECT ON DATABASE"},
		"sql_ascii": {pgconf.Config{URL: with(t, good, func(u *url.URL) { u.Path = "/" + ascii })}, engine.Permanent, "SQL_ASCII"},
		"tls":       {pgconf.Config{URL: with(t, good, func(u *url.URL) { u.RawQuery = "sslmode=require" })}, engine.Permanent, "does not speak TLS"},
		"bad url":   {pgconf.Config{URL: "postgres://me:" + secret + "@host:port:99/db"}, engine.Permanent, "the url"},
		"bad root":  {pgconf.Config{URL: good, SSLMode: "verify-full", SSLRootCert: "/no/such/file"}, engine.Permanent, `sslrootcert "/no/such/file"`},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := connect(&c.cfg, time.Millisecond)
			if err == nil {
				_ = conn.Close(context.Background())
			}
			require.Error(t, err)
			require.Equal(t, c.class, engine.ClassOf(err), "%v", err)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), secret)
		})
	}
}

// listen answers connections on a port of its own with fn.
func listen(t *testing.T, fn func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			fn(c)
		}
	}()
	return l.Addr().String()
}

// certificate makes a self-signed one for a name.
func certificate(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &priv.PublicKey, priv)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(priv)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func TestTLSAndWaiting(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, "localhost")
	srv := pgtest.StartT(t, pgtest.Config{Files: map[string][]byte{"server.crt": cert, "server.key": key},
		Params: map[string]string{"ssl": "on", "max_connections": "5", "superuser_reserved_connections": "0", "reserved_connections": "0", "max_wal_senders": "0", "wal_level": "replica"}})
	raw := srv.URL("postgres")
	root := filepath.Join(t.TempDir(), "root.crt")
	require.NoError(t, os.WriteFile(root, cert, 0o600))
	other, _ := certificate(t, "localhost")
	wrong := filepath.Join(t.TempDir(), "wrong.crt")
	require.NoError(t, os.WriteFile(wrong, other, 0o600))
	bare := with(t, raw, func(u *url.URL) { u.RawQuery = "" })
	named := with(t, bare, func(u *url.URL) { u.Host = "localhost:" + u.Port() })

	conn, err := connect(&pgconf.Config{URL: named, SSLMode: "verify-full", SSLRootCert: root}, time.Second)
	require.NoError(t, err)
	var ssl bool
	require.NoError(t, conn.QueryRow(context.Background(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&ssl))
	require.True(t, ssl)
	require.NoError(t, conn.Close(context.Background()))
	_, err = connect(&pgconf.Config{URL: bare, SSLMode: "verify-full", SSLRootCert: root}, time.Second)
	require.ErrorContains(t, err, "certificate is for another name")
	require.Equal(t, engine.Permanent, engine.ClassOf(err))
	_, err = connect(&pgconf.Config{URL: named, SSLMode: "verify-full", SSLRootCert: wrong}, time.Second)
	require.ErrorContains(t, err, "authority that is not trusted")

	// Too many connections: wait for one to become free.
	var held []*pgx.Conn
	for range 5 {
		c, err := connect(&pgconf.Config{URL: bare}, time.Second)
		require.NoError(t, err)
		held = append(held, c)
	}
	_, err = connect(&pgconf.Config{URL: bare}, time.Millisecond)
	require.Equal(t, engine.Retryable, engine.ClassOf(err))
	require.ErrorContains(t, err, "53300")
	time.AfterFunc(300*time.Millisecond, func() { _ = held[0].Close(context.Background()) })
	conn, err = connect(&pgconf.Config{URL: bare}, 10*time.Second)
	require.NoError(t, err)
	for _, c := range append(held[1:], conn) {
		_ = c.Close(context.Background())
	}

	// A server that is down: wait until it is up, but not for ever.
	require.NoError(t, srv.Shutdown())
	begin := time.Now()
	_, err = connect(&pgconf.Config{URL: bare}, time.Second)
	require.Equal(t, engine.Retryable, engine.ClassOf(err))
	require.Less(t, time.Since(begin), 5*time.Second)
	up := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() { up <- srv.Restart(context.Background()) })
	conn, err = connect(&pgconf.Config{URL: bare}, 20*time.Second)
	require.NoError(t, err)
	require.NoError(t, <-up)
	require.NoError(t, conn.Close(context.Background()))

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = pgconf.Connect(ctx, &pgconf.Config{URL: bare}, engine.OpenOptions{}, pgconf.Role{Name: "x"})
	require.ErrorIs(t, err, context.Canceled)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ raw, want string }{
		{`{"url": "postgres://a/b", "host": "c"}`, "both url and parts"},
		{`{"host": "a", "lock_timeout": "-1s"}`, "lock_timeout -1s is negative"},
		{`{"host": "a", "ssh": {}}`, "ssh has no host"},
		{`{"host": "a", "sslmode": "maybe"}`, `sslmode "maybe"`},
	} {
		cfg := &pgconf.Config{}
		require.NoError(t, json.Unmarshal([]byte(c.raw), cfg))
		require.ErrorContains(t, cfg.Validate(), c.want)
	}
	cfg := &pgconf.Config{}
	require.ErrorContains(t, json.Unmarshal([]byte(`{"lock_timeout": 5}`), cfg), "with a unit")
	require.ErrorContains(t, json.Unmarshal([]byte(`{"lock_timeout": "5"}`), cfg), `read duration "5"`)
	require.NoError(t, json.Unmarshal([]byte(`{"lock_timeout": "1m30s"}`), cfg))
	b, err := json.Marshal(cfg)
	require.NoError(t, err)
	require.JSONEq(t, `{"lock_timeout": "1m30s"}`, string(b))
}

func TestAppNames(t *testing.T) {
	t.Parallel()
	long := "public." + strings.Repeat("ü", 60) + "/17"
	name := pgconf.AppName(runID, pgconf.Role{Name: long, Claim: 1234567890})
	require.LessOrEqual(t, len(name), 63)
	require.True(t, strings.HasPrefix(name, pgconf.AppNamePrefix(runID, long)), name)
	require.True(t, strings.HasSuffix(name, "/1234567890"))
	require.NotEqual(t, name, pgconf.AppName(runID, pgconf.Role{Name: long + "8", Claim: 1234567890}))
	require.Equal(t, "tranship/6666abcd/plan", pgconf.AppName(runID, pgconf.Role{Name: "plan"}))
	require.Equal(t, "tranship/-/plan", pgconf.AppName("", pgconf.Role{Name: "plan"}))
}
