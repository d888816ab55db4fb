// Package blackbox tests an installation of Tranship from outside: over HTTP, through
// real queues, real function processes and a real PostgreSQL, as a user or a bad day
// would treat it. It knows nothing of the product's code.
//
// It is a module of its own, so that go test ./... of the checkout does not run it:
// it needs the installation that make localstack starts, and fails where there is
// none. make localstack-test starts one if needed and runs it.
package blackbox
