package engine

import (
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/tranship-io/tranship/engine/integrity"
)

// Op is what a row of a batch does at the destination.
type Op uint8

// The operations. Table reads carry only inserts.
const (
	OpInsert Op = iota
	// OpUpdate changes the row with the same key.
	OpUpdate
	// OpDelete removes a row; its row has the key, other columns only if the source
	// sent them (see [Batch.Unchanged]).
	OpDelete
	// OpMove is the second half of a change of a key: the row as it is now, whose
	// former key the OpDelete just before it has removed. Columns that the source did
	// not send are those of that former row.
	OpMove
	// OpTruncate removes all rows; its row has no value but NULL.
	OpTruncate
)

// WireFormat names an encoding of whole rows that a source and a sink share.
type WireFormat string

// WirePostgresCopy is a run of PostgreSQL binary COPY tuples: for each row an
// int16 field count and per field an int32 length (-1: NULL) and that many
// bytes, without the file header and trailer.
const WirePostgresCopy WireFormat = "postgres-copy-binary"

// Batch is rows of one resource that move together: either columns (Record) or
// encoded rows (Wire), never both.
//
// A batch has one owner. Writing it to a [Writer] passes ownership to the
// engine, which calls Release once the sink has returned from the batch; a sink
// that needs rows longer copies them.
type Batch struct {
	Resource string
	// Seq counts the batches of one Read from 0.
	Seq uint64
	// Rows is the number of rows, Bytes their size in memory.
	Rows  int
	Bytes int64
	// Digest is the content digest of the rows, taken at the source's edge.
	Digest integrity.Digest
	// CRC is the CRC32C over Wire, or over the buffers of Record as
	// [integrity.RecordCRC] defines, taken at the source's edge. The sink
	// computes it again at its write boundary.
	CRC uint32
	// Wire holds the rows in the negotiated wire format.
	Wire []byte
	// Record holds the rows as columns in the resource's Arrow schema.
	Record arrow.RecordBatch
	// Ops has one operation a row; nil means that all rows are inserts.
	Ops []Op
	// Unchanged, if not nil, has for each row a bitmap (bit c of word c/64) of the
	// columns that the source did not send: for a row that was there they have not
	// changed. nil for a row: all were sent. Such columns are NULL in the row.
	Unchanged [][]uint64
	// Commits say which source transactions the rows belong to, and Sequence the
	// ordinal of each row's change in its transaction; both only with Ops.
	Commits  []Commit
	Sequence []int64
	// Seen are hashes of (key, cursor) of the rows that the next run's window
	// will read again; only with [ReadRequest.Remember].
	Seen []RowID
	// Skipped counts rows read but left out by a stated policy (NULL cursor,
	// already applied in the window); they are not among Rows.
	Skipped int
	// Policies name the part of Skipped that the receipt counts by column and
	// reason ([PolicySkip]).
	Policies []PolicyCount
	// Free returns the batch's memory to its pool; may be nil.
	Free func()
}

// Commit is a source transaction in a batch of changes.
type Commit struct {
	// Row is the first of the batch's rows that belongs to it.
	Row int
	// Position is where it committed, written so that positions sort as text.
	Position string
	// At is when it committed, by the source's clock.
	At time.Time
}

// RowID is a 128-bit hash of a row's key and cursor value.
type RowID [16]byte

// Release gives the batch's memory back. It is called once, by the owner.
func (b *Batch) Release() {
	if b.Record != nil {
		b.Record.Release()
		b.Record = nil
	}
	b.Wire = nil
	if b.Free != nil {
		b.Free()
		b.Free = nil
	}
}
