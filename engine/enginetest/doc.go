// Package enginetest holds the shared conformance suites of the engine's
// contracts: every source passes [RunSource], every sink [RunSink], every State
// the suite of statetest. A connector calls them in a few lines; what its spec
// advertises and the suite doesn't prove, it may not advertise.
//
// The packages beneath are in-memory implementations of the contracts and the
// simulation that lets the engine run on them under faults.
package enginetest
