//go:build !unix

package embedpg

import (
	"context"
	"errors"
)

// ErrExternal is returned by the calls that would stop a server which this
// process did not start.
var ErrExternal = errors.New("the server is shared and not ours to stop")

// Server is a PostgreSQL server; this system has none of ours.
type Server struct{}

// Start fails: this system cannot run a server of the process's own.
func Start(context.Context, Config) (*Server, error) {
	return nil, errors.New("start PostgreSQL: this system cannot run a server of the process's own; name a running one")
}

// URL is the connection string of a database, as superuser.
func (*Server) URL(string) string { return "" }

// CreateDatabase creates an empty database.
func (*Server) CreateDatabase(context.Context, string) error { return errors.ErrUnsupported }

// Stop ends the server.
func (*Server) Stop() error { return nil }

// Place returns the folder for a cluster.
func Place(path string) (string, error) { return path, nil }
