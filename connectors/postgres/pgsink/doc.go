// Package pgsink writes to PostgreSQL 13–18, effectively once.
//
// Every epoch is one transaction that holds the rows, the check of the run's
// fence and the split's step in the ledger (P2), so what the ledger says is what
// the tables hold. Rows arrive by binary COPY, straight into their table where
// nothing has to be looked at, else through a temporary table from which one
// statement checks, converts and moves them; no row is ever written alone.
//
// The destination holds, in the schema _tranship (or in the target's own, where
// the role may not make one): fence, a row per route and resource; ledger, a row
// per split; ledger_staged, the same for splits whose rows lie in unlogged
// staging, and unlogged itself so that a crash empties both together (P7).
package pgsink
