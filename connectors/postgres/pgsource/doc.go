// Package pgsource reads PostgreSQL 13 to 18: it discovers tables, views and
// partitioned tables, cuts them into splits, and reads splits as binary COPY
// streams that are handed on as they are or decoded into columns.
//
// Full reads are chunked (ranges of a key, each in its own transaction) or of one
// exported snapshot (block ranges where the server can, P12); incremental reads
// follow P15, so that transactions that commit late are not lost. Keys and
// cursors are compared by the server only, in the column's own collation (P13).
package pgsource
