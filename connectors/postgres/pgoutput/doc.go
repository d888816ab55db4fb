// Package pgoutput reads the messages of PostgreSQL's logical replication output
// plugin of that name, protocol version 1, as they come in XLogData
// (https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html).
//
// A [Decoder] is used again for every message: what it returns points into the
// message's bytes and into itself, and is valid until the next call.
package pgoutput
