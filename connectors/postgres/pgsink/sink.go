package pgsink

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

// Config is the sink's configuration.
type Config struct {
	pgconf.Config
	Options
}

// Options say where and how the sink writes.
type Options struct {
	// Schema is the schema of all targets; empty means the source's own schema names.
	Schema string `json:"schema,omitempty" jsonschema:"description=Schema of the targets (default: the schema that the table has at the source)"`
	// LedgerSchema holds the ledger's tables; empty means _tranship, or the
	// targets' schema where the role may not make one.
	LedgerSchema string `json:"ledger_schema,omitempty" jsonschema:"description=Schema of the ledger's tables (default _tranship; the targets' schema where the role may not create one)"`
	// Staging says whether the tables of a replace are written to the log while
	// they load: logged, unlogged, or auto (default), which is logged where the
	// staging becomes the target and unlogged where its rows are copied.
	Staging string `json:"staging,omitempty" jsonschema:"description=Whether staging is logged while it loads (default auto),enum=auto,enum=logged,enum=unlogged"`
}

// The values of Options.Staging.
const (
	StagingAuto     = "auto"
	StagingLogged   = "logged"
	StagingUnlogged = "unlogged"
)

// ResourceOptions are the sink's options of one resource.
type ResourceOptions struct {
	// Columns renames columns, by source name.
	Columns map[string]string `json:"columns,omitempty" jsonschema:"description=Target names of columns by source name"`
	// Staging overrides the sink's.
	Staging string `json:"staging,omitempty" jsonschema:"description=Overrides the sink's staging,enum=auto,enum=logged,enum=unlogged"`
}

// Sink is the PostgreSQL sink.
type Sink struct{}

var _ engine.Sink = (*Sink)(nil)

// New returns the PostgreSQL sink.
func New() *Sink { return &Sink{} }

// Spec implements engine.Sink.
func (*Sink) Spec() engine.Spec {
	return engine.Spec{
		Name:    "postgres",
		Title:   "PostgreSQL",
		Summary: "Writes to PostgreSQL 13–18, effectively once: rows, fence and ledger commit together.",
		Config:  new(Config),
		Writes:  []engine.WriteMode{engine.WriteReplace, engine.WriteAppend, engine.WriteUpsert, engine.WriteDelete, engine.WriteMerge},
		// P2: the ledger commits with the rows.
		Delivery: "effectively-once",
		Wire:     []engine.WireFormat{engine.WirePostgresCopy},
		Notes: []string{
			"Readers see the old rows of a replaced table until the moment of the commit, then the new ones; a transaction that took its snapshot before the swap of a whole table and touches it only afterwards may see it empty.",
			"Where views, foreign keys, publications, triggers or policies depend on a replaced table, its rows are exchanged inside the table instead of swapping it; triggers of the table then fire.",
			"Fence and ledger are tables in the schema _tranship, or in the targets' schema where the role may not make a schema.",
			"Times are kept in microseconds; a finer value fails the run unless a value policy says otherwise.",
			"A session of an older claim that still holds locks is ended with pg_terminate_backend; this works for sessions of the same role.",
		},
	}
}

// Open implements engine.Sink.
func (*Sink) Open(ctx context.Context, cfg engine.Config, opt engine.OpenOptions) (engine.SinkSession, error) {
	var c Config
	dec := json.NewDecoder(bytes.NewReader(cfg))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return nil, engine.Permanentf("correct the sink's configuration", "read postgres sink configuration: %w", err)
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	s, err := open(ctx, c, opt)
	if err != nil {
		// Not a nil *Session, which is no nil interface.
		return nil, err
	}
	return s, nil
}

func (c *Config) validate() error {
	if err := c.Config.Validate(); err != nil {
		return err
	}
	if !knownStaging(c.Staging) {
		return engine.Permanentf("write auto, logged or unlogged", "sink option staging is %q", c.Staging)
	}
	for what, name := range map[string]string{"schema": c.Schema, "ledger_schema": c.LedgerSchema} {
		if len(name) > maxName {
			return engine.Permanentf("choose a shorter name", "sink option %s is %d bytes long, PostgreSQL holds %d", what, len(name), maxName)
		}
	}
	return nil
}

func knownStaging(s string) bool {
	return s == "" || s == StagingAuto || s == StagingLogged || s == StagingUnlogged
}

// Session is a connection to one destination database.
type Session struct {
	options  Options
	pool     *pool
	ledger   ledger
	identity string
	// major is the server's major version.
	major int
	// owner names this session in claims, so that the same session may repeat one.
	owner string

	mu sync.Mutex
	// details are the targets' own parts, decoded once.
	details map[*engine.Target]*detail
	// places tells which resource a table was prepared for.
	places map[place]string
	// exchanged are resources whose changes exchange unique values between rows.
	exchanged map[string]bool
}

var (
	_ engine.SinkSession      = (*Session)(nil)
	_ engine.Fencer           = (*Session)(nil)
	_ engine.Adopter          = (*Session)(nil)
	_ engine.ConnectionTester = (*Session)(nil)
)

func open(ctx context.Context, c Config, opt engine.OpenOptions) (*Session, error) {
	s := &Session{options: c.Options, owner: rand.Text(), details: map[*engine.Target]*detail{}, places: map[place]string{}}
	s.pool = newPool(func(ctx context.Context) (*pgx.Conn, error) {
		pg, err := pgconf.Connect(ctx, &c.Config, opt, pgconf.Role{Name: "sink"})
		if err != nil {
			return nil, err
		}
		if _, err := pg.Exec(ctx, "SET client_min_messages = warning"); err != nil {
			_ = pg.Close(context.WithoutCancel(ctx))
			return nil, classify(err, "prepare session")
		}
		return pg, nil
	})
	err := s.with(ctx, "", func(pg *conn) error {
		err := pgconf.RequireSession(ctx, &c.Config, opt, pg.Conn)
		if err != nil {
			return err
		}
		if s.identity, err = pgconf.Identity(ctx, pg.Conn); err != nil {
			return err
		}
		s.major = pgconf.ServerVersion(pg.Conn) / 10000
		s.ledger, err = findLedger(ctx, pg, s.options)
		return err
	})
	if err != nil {
		s.pool.close()
		return nil, err
	}
	return s, nil
}

// Identity implements engine.SinkSession.
func (s *Session) Identity() string { return s.identity }

// Close implements engine.SinkSession.
func (s *Session) Close(context.Context) error {
	s.pool.close()
	return nil
}
