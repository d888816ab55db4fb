// Package sqlite keeps the engine's State in one SQLite file, so that a run on
// a laptop needs no server. It implements [engine.State] in pure Go.
//
// # What is durable
//
// The file is in WAL mode with synchronous=FULL: a call that returned without
// an error survives a power cut. The destination's ledger would make up for a
// lost checkpoint (P3), but a source is acknowledged only up to the stored
// checkpoint (invariant 3) and a files sink knows staged artifacts only from
// here, so NORMAL, which may lose the last commits, is not enough. A commit costs
// one sync of the log: 0.4 to 0.7 ms on an SSD (BenchmarkCommit), where the sync
// alone is most of it.
//
// # Who may write
//
// Every write is one transaction that first checks the caller's slot
// generation and, for a split, its claim: an overtaken caller gets
// [*engine.StaleError] and nothing is written (invariant 2). Writes of one
// process queue for one connection; other processes are waited for up to the
// busy timeout. Different pipelines may run on one file at the same time.
//
// # One process a route
//
// The process that works on a route holds an operating-system lock on a file
// in the folder "<state file>.locks" beside the state file, from StartRun until
// the run has ended and its slots are free, or the Store is closed. A second
// process gets [engine.ErrLocked] at once. The kernel drops the lock of a
// killed process, so the next process takes the run over at once: leases of the
// dead one are void, however long they had to run. Leases decide only between
// workers of the same process. Lock files stay; deleting one while a process
// holds it would let a second one in.
//
// # What is kept
//
// Facts, plans and receipts of the newest [DefaultKeepRuns] runs of each route;
// older runs are deleted when a run starts. Cursors, ordinals and the
// installation's id are kept for ever. A lost file loses history only: the
// destination's ledger brings the route back (P1).
//
// # Versions
//
// PRAGMA user_version counts the migrations that a file has seen. Opening
// migrates an older file; a file of a newer version is refused and left
// untouched.
package sqlite
