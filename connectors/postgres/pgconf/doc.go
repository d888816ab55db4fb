// Package pgconf connects to PostgreSQL the way a user of libpq expects, for
// source and sink alike: connection strings and parts, service and password
// files, TLS, SSH tunnels, timeouts. It pins every setting of a session that the
// text or binary form of values depends on, says for each failure which of host,
// TLS, password, database or rights is wrong, and sorts the server's errors into
// the engine's classes by SQLSTATE.
package pgconf
