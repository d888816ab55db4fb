package serve

import (
	"log/slog"
	"time"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/projection"
)

// Config says how a process serves.
type Config struct {
	// Listen is the address of the API, such as 127.0.0.1:8080.
	Listen string
	// DatabaseURL is the control plane's database; empty: a PostgreSQL server of
	// this process's own in Folder.
	DatabaseURL string
	// Folder holds what this installation keeps in files; empty: ".tranship".
	Folder string
	// MasterKeyFile holds the master keys, which all processes of an installation
	// share; empty: master.key in Folder. It is made if it is not there.
	MasterKeyFile string
	// BootstrapKeyFile gets an admin key of the first organization, if none exists
	// yet; empty: no organization is made.
	BootstrapKeyFile string
	// OIDC are the issuers whose tokens let members in; none: API keys alone.
	OIDC []access.OIDC
	// Organization is the key of the organization that a bootstrap makes; empty: "main".
	Organization string
	// Workers is how many attempts live at once; 0 means 4. Negative: none, this
	// process only serves the API.
	Workers int
	// Lease is after what time a lost worker's run goes on elsewhere; 0 means 60 s.
	Lease time.Duration
	// AttemptTime bounds an attempt; 0 means 5 min.
	AttemptTime time.Duration
	// MaxRunning is how many slots of one organization run at once; 0 means 64.
	MaxRunning int
	// Grace is how long a stop waits for attempts to come to a safe position; 0
	// means 25 s.
	Grace time.Duration
	// Memory bounds one attempt in bytes if its pipeline says nothing; 0 means 256 MiB.
	Memory int64
	// Postgres is the version, cache and repository of the server of the process's
	// own; see embedpg.Config.
	PostgresVersion, PostgresCache, PostgresRepository string
	// Webhooks says which addresses notifications may be sent to.
	Webhooks notify.Guard
	// Prices turn what runs use into money; zero: nothing costs anything.
	Prices  projection.Prices
	Catalog *catalog.Catalog
	Lookup  func(name string) (string, bool)
	// Version is the program's.
	Version string
	Log     *slog.Logger
	// Ready is called once with the API's address when it answers; nil: nobody.
	Ready func(address string)
}

func (c *Config) defaults() {
	if c.Folder == "" {
		c.Folder = ".tranship"
	}
	if c.MasterKeyFile == "" {
		c.MasterKeyFile = c.Folder + "/master.key"
	}
	if c.Organization == "" {
		c.Organization = "main"
	}
	if c.Workers == 0 {
		c.Workers = 4
	}
	if c.Lease <= 0 {
		c.Lease = time.Minute
	}
	if c.AttemptTime <= 0 {
		c.AttemptTime = 5 * time.Minute
	}
	if c.MaxRunning <= 0 {
		c.MaxRunning = 64
	}
	if c.Grace <= 0 {
		c.Grace = 25 * time.Second
	}
	if c.Memory <= 0 {
		c.Memory = 256 << 20
	}
}
