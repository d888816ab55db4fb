// Package connections keeps the reusable configurations of sources and sinks,
// their secrets apart: a connection holds references, and what a reference stands
// for is resolved only where a session is opened (invariant 10).
package connections
