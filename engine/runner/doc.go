// Package runner is the attempt loop: it takes a run from intake to receipt by
// moving its splits through a source and a sink under leases, claims, fence and
// ledger.
//
// One call of [Run] is one process's work on one run: it opens both ends, finds
// out what the destination knows of the route (P1), starts or resumes the run,
// freezes the plan, works in n slots until nothing is left or it is asked to
// stop, and closes the run with a receipt. Any number of processes may be killed
// at any instruction meanwhile; the next one goes on (invariant 13).
package runner
