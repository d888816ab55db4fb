// Package pgcopy is the codec of PostgreSQL's binary COPY format: it finds
// tuples in a stream, digests them in the canonical encoding of
// docs/integrity.md without decoding what is canonical already, decodes them
// into Arrow records, and encodes records into tuples.
//
// A tuple is an int16 field count and per field an int32 length (-1: NULL) and
// that many bytes, all big-endian. [Scanner] cuts a stream into tuples;
// [Digester], [Decoder] and [Encoder] each compile one plan per column when they
// are made, so that the work on a value is one switch.
//
// Nothing here is safe for concurrent use; make one of each per stream. The
// encoding of both sessions must be UTF8 (client_encoding), and nothing here
// talks to a server.
package pgcopy
