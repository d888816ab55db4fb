// Package postgres is the PostgreSQL connector: a source and a sink for
// PostgreSQL 13 to 18. The work is done in its sub-packages: pgconf connects,
// pgcopy codes binary COPY, pgsource reads, pgsink writes.
package postgres
