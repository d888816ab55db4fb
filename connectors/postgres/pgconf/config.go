package pgconf

import (
	"fmt"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// Config says how to connect to a PostgreSQL server. Either URL or the parts
// are given; what neither names comes from the PG* environment variables, the
// service file and libpq's defaults, in libpq's order.
type Config struct {
	// URL is a postgres:// URL or a "key=value …" connection string.
	URL string `json:"url,omitempty" secret:"true" jsonschema:"description=postgres:// URL or a key=value connection string; libpq's parameters are understood"`
	// Host is a name, an address, or a folder of Unix sockets.
	Host     string `json:"host,omitempty" jsonschema:"description=Host name or address or the folder of a Unix socket"`
	Port     int    `json:"port,omitempty" jsonschema:"description=Port (default 5432),minimum=1,maximum=65535"`
	User     string `json:"user,omitempty" jsonschema:"description=Role to connect as"`
	Password string `json:"password,omitempty" secret:"true" jsonschema:"description=Password; better left to a password file or the environment"`
	Database string `json:"database,omitempty" jsonschema:"description=Database name (default: the role's name)"`
	// SSLMode is libpq's: disable, allow, prefer (default), require, verify-ca, verify-full.
	SSLMode     string `json:"sslmode,omitempty" jsonschema:"description=TLS mode as in libpq (default prefer),enum=disable,enum=allow,enum=prefer,enum=require,enum=verify-ca,enum=verify-full"`
	SSLRootCert string `json:"sslrootcert,omitempty" jsonschema:"description=File with the certificates of trusted authorities"`
	SSLCert     string `json:"sslcert,omitempty" jsonschema:"description=File with the client certificate"`
	SSLKey      string `json:"sslkey,omitempty" jsonschema:"description=File with the client certificate's key"`
	SSLPassword string `json:"sslpassword,omitempty" secret:"true" jsonschema:"description=Password of the client certificate's key"`
	// Service names a section of the service file (PGSERVICEFILE, ~/.pg_service.conf).
	Service     string `json:"service,omitempty" jsonschema:"description=Section of the service file"`
	ServiceFile string `json:"servicefile,omitempty" jsonschema:"description=Service file (default PGSERVICEFILE or ~/.pg_service.conf)"`
	PassFile    string `json:"passfile,omitempty" jsonschema:"description=Password file (default PGPASSFILE or ~/.pgpass)"`
	// SSH, if not nil, is the machine through which the server is reached.
	SSH *SSH `json:"ssh,omitempty" jsonschema:"description=SSH tunnel to the server"`
	// ConnectTimeout bounds one try to connect; 0 means 10 s.
	ConnectTimeout Duration `json:"connect_timeout,omitempty" jsonschema:"description=Bound of one try to connect (default 10s)"`
	// StatementTimeout bounds one statement; 0 means none, whatever the role's
	// default: a copy of a large table may take hours and is watched by
	// StallTimeout instead.
	StatementTimeout Duration `json:"statement_timeout,omitempty" jsonschema:"description=Bound of one statement (default none)"`
	// LockTimeout bounds the wait for one lock; 0 means 30 s.
	LockTimeout Duration `json:"lock_timeout,omitempty" jsonschema:"description=Bound of the wait for one lock (default 30s)"`
	// IdleInTransactionTimeout lets the server end a session that does nothing
	// inside a transaction; 0 means 10 min. A session that holds a snapshot is exempt.
	IdleInTransactionTimeout Duration `json:"idle_in_transaction_timeout,omitempty" jsonschema:"description=Bound of idleness inside a transaction (default 10m)"`
	// TCPUserTimeout is how long sent data may stay unacknowledged before the
	// connection counts as broken; 0 means 60 s. It has an effect on Linux.
	TCPUserTimeout Duration `json:"tcp_user_timeout,omitempty" jsonschema:"description=How long sent data may stay unacknowledged (default 60s)"`
	// StallTimeout is how long a server that should send rows may send nothing;
	// 0 means 5 min.
	StallTimeout Duration `json:"stall_timeout,omitempty" jsonschema:"description=How long the server may send nothing while rows are read (default 5m)"`
}

// SSH is a tunnel: the machine to go through, and how to log in there.
type SSH struct {
	Host string `json:"host" jsonschema:"description=Host of the SSH server"`
	Port int    `json:"port,omitempty" jsonschema:"description=Port (default 22)"`
	User string `json:"user,omitempty" jsonschema:"description=User (default: the local one)"`
	// KeyFile holds a private key; KeyPassword opens it.
	KeyFile     string `json:"key_file,omitempty" jsonschema:"description=File with the private key"`
	KeyPassword string `json:"key_password,omitempty" secret:"true" jsonschema:"description=Password of the private key"`
	Password    string `json:"password,omitempty" secret:"true" jsonschema:"description=Password of the user"`
	// KnownHosts is the file that the server's key must be in; empty means
	// ~/.ssh/known_hosts.
	KnownHosts string `json:"known_hosts,omitempty" jsonschema:"description=File with known host keys (default ~/.ssh/known_hosts)"`
	// Agent uses the keys of the agent at SSH_AUTH_SOCK.
	Agent bool `json:"agent,omitempty" jsonschema:"description=Use the keys of the running SSH agent"`
}

// Timeouts of a configuration that leaves them out.
const (
	DefaultConnectTimeout           = 10 * time.Second
	DefaultLockTimeout              = 30 * time.Second
	DefaultIdleInTransactionTimeout = 10 * time.Minute
	DefaultTCPUserTimeout           = time.Minute
	DefaultStallTimeout             = 5 * time.Minute
	DefaultGiveUp                   = time.Minute
)

// Stall returns the stall timeout in effect.
func (c *Config) Stall() time.Duration { return c.StallTimeout.or(DefaultStallTimeout) }

// Validate tells what is wrong with the configuration itself, without connecting.
func (c *Config) Validate() error {
	for name, d := range map[string]Duration{
		"connect_timeout": c.ConnectTimeout, "statement_timeout": c.StatementTimeout,
		"lock_timeout": c.LockTimeout, "idle_in_transaction_timeout": c.IdleInTransactionTimeout,
		"tcp_user_timeout": c.TCPUserTimeout, "stall_timeout": c.StallTimeout,
	} {
		if d < 0 {
			return engine.Permanentf("give a duration such as 30s, or leave it out", "postgres %s %s is negative", name, d)
		}
	}
	if c.URL != "" && (c.Host != "" || c.Port != 0 || c.User != "" || c.Database != "" || c.Service != "") {
		return engine.Permanentf("remove one of the two", "postgres connection has both url and parts of it (host, port, user, database or service)")
	}
	if c.SSH != nil && c.SSH.Host == "" {
		return engine.Permanentf("name the machine to go through", "postgres ssh has no host")
	}
	_, err := c.parse()
	return err
}

// parse lets pgx merge connection string, environment, service and password file.
func (c *Config) parse() (*pgx.ConnConfig, error) {
	pc, err := pgx.ParseConfig(c.connString())
	if err != nil {
		// The error quotes the connection string with only the passwords that
		// could be recognized masked, so it is not shown (invariant 10).
		return nil, engine.Permanentf(
			"expected is postgres://user:password@host:port/database?sslmode=require, with special characters percent-encoded; files that it names must be readable",
			"postgres connection settings can't be used: %s", c.parseFailure())
	}
	return pc, nil
}

// parts are libpq's names of the parts that are set.
func (c *Config) parts() map[string]string {
	p := map[string]string{
		"host": c.Host, "user": c.User, "password": c.Password, "dbname": c.Database,
		"sslmode": c.SSLMode, "sslrootcert": c.SSLRootCert, "sslcert": c.SSLCert, "sslkey": c.SSLKey,
		"sslpassword": c.SSLPassword, "service": c.Service, "servicefile": c.ServiceFile, "passfile": c.PassFile,
	}
	if c.Port != 0 {
		p["port"] = strconv.Itoa(c.Port)
	}
	for k, v := range p {
		if v == "" {
			delete(p, k)
		}
	}
	return p
}

func (c *Config) isURL() bool {
	return strings.HasPrefix(c.URL, "postgres://") || strings.HasPrefix(c.URL, "postgresql://")
}

// connString adds the parts to the URL or connection string.
func (c *Config) connString() string {
	p := c.parts()
	keys := make([]string, 0, len(p))
	for k := range p {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	s := c.URL
	for _, k := range keys {
		if c.isURL() {
			sep := "&"
			switch {
			case !strings.Contains(s, "?"):
				sep = "?"
			case strings.HasSuffix(s, "?"), strings.HasSuffix(s, "&"):
				sep = ""
			}
			s += sep + k + "=" + strings.ReplaceAll(url.QueryEscape(p[k]), "+", "%20")
			continue
		}
		v := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(p[k])
		s += fmt.Sprintf(" %s='%s'", k, v)
	}
	return strings.TrimSpace(s)
}

// parseFailure finds out which setting is at fault without quoting any: each is
// tried alone.
func (c *Config) parseFailure() string {
	if c.URL != "" {
		if _, err := pgx.ParseConfig(c.URL); err != nil {
			return "the url (or a PG* environment variable or file that it leads to) is not valid"
		}
	}
	for k, v := range c.parts() {
		one := Config{URL: "host=localhost"}
		switch k {
		case "sslmode":
			one.SSLMode = v
		case "sslrootcert":
			one.SSLMode, one.SSLRootCert = "verify-full", v
		case "service":
			one.Service, one.ServiceFile = v, c.ServiceFile
		case "sslcert", "sslkey":
			one.SSLMode, one.SSLCert, one.SSLKey, one.SSLPassword = "require", c.SSLCert, c.SSLKey, c.SSLPassword
		default:
			continue
		}
		if _, err := pgx.ParseConfig(one.connString()); err != nil {
			return fmt.Sprintf("%s %q is not valid or its file can't be read", k, v)
		}
	}
	return "the parts don't fit together"
}
