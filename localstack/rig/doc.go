// Package rig runs AWS on this machine without a Docker engine: LocalStack's
// Python core with our plug-in (localstack/plugin), as one process on 127.0.0.1.
//
// A test package that needs AWS calls Main from its TestMain and takes the shared
// core in its tests. Names of resources must be unique, since tests of several
// packages share one core:
//
//	func TestMain(m *testing.M) { rig.Main(m) }
//
//	func TestQueue(t *testing.T) {
//		t.Parallel()
//		core := rig.Shared(t)
//		client := sqs.NewFromConfig(core.AWS())
//		queue := rig.Name(t)
//		…
//	}
//
// Shared starts one core for the test binary (about 15 s), or uses the one that
// TRANSHIP_TEST_AWS names; the command rig run starts a core and sets that variable
// for a whole go test invocation. The same variable runs tests against a LocalStack
// or ministack of the user's own.
//
// A core never outlives the process that started it: it ends when its standard
// input does, and takes the functions' processes with it.
package rig
