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
package store
