package pgsource

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/tranship-io/tranship/connectors/postgres/pgoutput"
	"github.com/tranship-io/tranship/engine"
)

// streamPrefix begins the names of publications and slots that are ours.
const streamPrefix = "tranship_"

// streamName is the name of a route's publication and slot: always the same, so
// that what an attempt made is found by the next, and nobody else's.
func streamName(r engine.Route) string {
	sum := sha256.Sum256([]byte(r.Installation + "\x00" + r.Pipeline + "\x00" + r.Source + "\x00" + r.Sink))
	return streamPrefix + hex.EncodeToString(sum[:8])
}

// streamDescriptor is the split of a change stream; it is stored as JSON.
type streamDescriptor struct {
	Version     int    `json:"v"`
	Slot        string `json:"slot"`
	Publication string `json:"publication"`
	// Start is where the first Read begins.
	Start streamPosition `json:"start"`
	// Since has, for members whose changes are not wanted from Start on, the commit
	// from which they are.
	Since map[string]pgoutput.LSN `json:"since,omitempty"`
	// Tables are the members by OID.
	Tables map[uint32]string `json:"tables"`
}

// streamPosition is where a stream has been delivered up to.
type streamPosition struct {
	// LSN is the end of the last transaction that was delivered whole.
	LSN pgoutput.LSN `json:"lsn"`
	// Commit, if not 0, is a later transaction of which the first Changes changes
	// were delivered too (P18).
	Commit  pgoutput.LSN `json:"commit,omitempty"`
	Changes int64        `json:"changes,omitempty"`
	// Seen, if not 0, is a place in the log that rows which were completed have seen.
	Seen pgoutput.LSN `json:"seen,omitempty"`
}

// alignment is a member's alignment point (see engine/stream.go): pieces of the
// table are read in snapshots that see whatever Snapshot sees.
type alignment struct {
	Since    pgoutput.LSN `json:"since"`
	Snapshot string       `json:"snapshot"`
}
