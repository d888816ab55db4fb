package pgtest

import (
	"context"
	"maps"
	"os"

	"github.com/tranship-io/tranship/internal/embedpg"
)

// Server is a PostgreSQL server on 127.0.0.1, see [embedpg.Server].
type Server = embedpg.Server

// Config says which server to start, see [embedpg.Config]. The zero value is a
// throw-away server with the settings that tests want.
type Config = embedpg.Config

// ErrExternal is returned by the calls that would stop a server which this
// process did not start.
var ErrExternal = embedpg.ErrExternal

// Environment variables that the package reads.
const (
	// EnvVersion names the version of servers whose Config leaves it empty.
	EnvVersion = "TRANSHIP_TEST_PG_VERSION"
	// EnvURL names a running server, as superuser, that Shared uses instead of
	// starting one.
	EnvURL = "TRANSHIP_TEST_PG_URL"
	// EnvCache names the folder for unpacked binaries. The server's user must be
	// able to reach it.
	EnvCache = "TRANSHIP_TEST_PG_CACHE"
	// EnvRepository names a Maven repository to fetch binaries from, in place of
	// the public one.
	EnvRepository = "TRANSHIP_TEST_PG_REPOSITORY"
)

// DefaultParams returns the settings that tests want unless Config.Params says
// otherwise: logical decoding possible, many connections, and no flushing to
// disk. A killed server still keeps what it committed, since the operating
// system lives; set fsync=on where speed is measured or power loss matters.
func DefaultParams() map[string]string {
	return map[string]string{
		"fsync":                     "off",
		"wal_level":                 "logical",
		"max_connections":           "800",
		"max_prepared_transactions": "20",
		"max_wal_senders":           "20",
		"max_replication_slots":     "50",
		"max_wal_size":              "2GB",
		"jit":                       "off",
	}
}

// Start fetches the binaries if needed, makes a cluster and starts a server.
// The server runs until Stop, or until this process ends in whatever way; ctx
// bounds only the start.
func Start(ctx context.Context, config Config) (*Server, error) {
	params := DefaultParams()
	maps.Copy(params, config.Params)
	config.Params = params
	config.InitArgs = append([]string{"--no-sync"}, config.InitArgs...)
	return embedpg.Start(ctx, fromEnvironment(config))
}

// Fetch makes sure that the binaries of a version are in the cache and returns
// the folder that holds bin, lib and share.
func Fetch(ctx context.Context, version string) (string, error) {
	return embedpg.Fetch(ctx, fromEnvironment(Config{Version: version}))
}

// Versions lists the major versions that can be started by name.
func Versions() []string { return embedpg.Versions() }

func fromEnvironment(config Config) Config {
	for name, to := range map[string]*string{EnvVersion: &config.Version, EnvCache: &config.Cache, EnvRepository: &config.Repository} {
		if *to == "" {
			*to = os.Getenv(name)
		}
	}
	return config
}
