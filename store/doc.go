// Package store keeps the control plane's truth in PostgreSQL (14 to 18): it
// implements the ports of package control and its services, and the engine's
// State ports.
//
// # Database
//
// Everything lives in the schema tranship. [DB.Migrate] brings it up to date:
// the files in migrations are embedded, are never edited once a release has
// them, and run one process at a time. The search_path of our connections is
// that schema, so migrations and queries name tables without it. Queries are
// written in queries/*.sql; sqlc turns them into internal/db (make generate).
//
// # Roles
//
// tranship_owner owns the schema and migrates, tranship_app does the work of an
// organization, tranship_maintenance does what crosses organizations: sweeps,
// retention, projection. None of them can log in: the user of the URL is made a
// member of them by [DB.Migrate] and each transaction takes one with its first
// statement. A URL that logs in as tranship_app itself does for everything but
// [DB.Migrate] and [DB.Maintain].
//
// # Tenants (invariant 9)
//
// Every table of an organization's has a column organization, which begins its
// primary key and is part of each foreign key. Row-level security is enabled and
// forced. A migration gives a table all of that, and the grants, with
//
//	SELECT tranship.tenant('pipelines');
//	SELECT tranship.maintained('pipelines'); -- only if maintenance needs it
//
// so that tranship_app sees the rows of the transaction's organization alone,
// and tranship_maintenance those of all. [DB.Tx] sets the organization (P26);
// without one, a query fails.
//
// # Order of locks
//
// Rows are locked in this order, and rows of one table by their ids, so that
// transactions wait for each other in one direction:
//
//  1. rows of the organization's desk: members, keys, connections, secrets,
//     pipelines, rules, schedules and then their occurrences
//  2. routes
//  3. runs
//  4. slots, splits, resources, cursors, artifacts, attempt offers
//  5. facts and their relays, which are only inserted; who takes a relay's rows
//     deletes them and locks no run
//  6. the history of runs, then metrics, then deliveries
//  7. last of all, the advisory lock of arming
//
// A run's row is locked before anything of the run is written, and with it
// whatever a worker does is decided: its facts have no gaps, and its fence is
// read in a statement after the lock was got (invariant 2). Three writes lock
// nothing of the run but one row of step 4, after which they lock no more: the
// renewal of a lease, and an offer's sending and acceptance. Whoever only reads
// locks nothing. Locks are FOR NO KEY UPDATE wherever other rows refer to the
// locked one, since each insertion of those takes FOR KEY SHARE.
//
// Creating and dropping months of facts locks whole tables, runs before facts,
// and gives up after a second. A deadlock that happens all the same is no
// caller's business: the transaction is run again.
package store
