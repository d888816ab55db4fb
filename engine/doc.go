// Package engine is the data plane: its contracts (sources, sinks, state) and
// the loop that moves rows between them in bounded, checkpointed, verified
// batches. It knows no particular system; connectors implement its interfaces.
//
// The way of a row: [SourceSession.Read] writes batches and marks to a
// [Writer]; the engine cuts them into epochs at marks; [SinkSession.Apply]
// applies each epoch with fence and ledger in one transaction; then the position
// is committed to the [State]. After a crash the ledger, not the checkpoint,
// says what is applied. The rules are numbered in docs/protocol.md (P1–P27), the
// invariants in docs/architecture.md.
package engine
