package pgtest

import (
	"maps"
	"time"
)

// Config says which server to start. The zero value is a throw-away server of
// the default version with the settings that tests want.
type Config struct {
	// Version is a major version ("17") or a full one ("17.11.0"). Empty means
	// TRANSHIP_TEST_PG_VERSION, or else DefaultVersion.
	Version string

	// Params are server settings. They are added to the defaults listed at
	// DefaultParams; an empty value removes a default.
	Params map[string]string

	// DataDir is the cluster's folder. Empty means a temporary one that Stop
	// removes. A named folder is created if needed, used again if it already
	// holds a cluster, never removed, and owned by the server's user.
	DataDir string

	// Port is the TCP port on 127.0.0.1. Zero means a free one.
	Port int

	// Files are written into the data folder before the server starts, readable
	// by the server alone: a certificate and its key, or a pg_hba.conf.
	Files map[string][]byte

	// InitArgs are added to initdb's arguments, such as --wal-segsize=1.
	InitArgs []string

	// StartTimeout bounds the wait until the server answers. Zero means 60 s.
	StartTimeout time.Duration
}

// DefaultParams returns the settings a server starts with unless
// Config.Params says otherwise: logical decoding possible, many connections,
// and no flushing to disk. A killed server still keeps what it committed,
// since the operating system lives; set fsync=on where speed is measured or
// power loss matters.
func DefaultParams() map[string]string {
	return map[string]string{
		"fsync":                     "off",
		"wal_level":                 "logical",
		"max_connections":           "800",
		"max_prepared_transactions": "20",
		"max_wal_senders":           "20",
		"max_replication_slots":     "50",
		"max_wal_size":              "2GB",
		"timezone":                  "UTC",
		"log_timezone":              "UTC",
		"lc_messages":               "C",
		"unix_socket_directories":   "",
		"listen_addresses":          "127.0.0.1",
		"password_encryption":       "scram-sha-256",
		"jit":                       "off",
	}
}

// params merges the defaults with the caller's settings.
func (c *Config) params() map[string]string {
	p := DefaultParams()
	maps.Copy(p, c.Params)
	for k, v := range c.Params {
		if v == "" {
			delete(p, k)
		}
	}
	return p
}
