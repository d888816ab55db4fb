// Package pgtest runs real PostgreSQL servers for tests, the demo, the kill
// harness and benchmarks; package embedpg fetches and drives them.
//
// A test package that needs a server calls Main from its TestMain and takes a
// database of its own in every test:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestCopy(t *testing.T) {
//		t.Parallel()
//		url := pgtest.NewDatabase(t, pgtest.Shared(t))
//		…
//	}
//
// Shared starts one server for the test binary, or uses the one that
// TRANSHIP_TEST_PG_URL names; the command pgtest run starts a server and sets
// that variable for a whole go test invocation. A test that wants to stop, kill
// or configure a server starts its own with Start or StartT.
//
// A server never outlives the process that started it, even one that was
// killed: a watchdog shuts it down and removes its temporary data.
package pgtest
