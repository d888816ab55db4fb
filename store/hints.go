package store

import (
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// HintKind says what there may be to do.
type HintKind string

// The hints.
const (
	// HintIntake: a run was asked for, or an attempt offered.
	HintIntake HintKind = "intake"
	// HintDesired: a run's owner wants something else of its workers.
	HintDesired HintKind = "desired"
	// HintFacts: facts wait for the relay.
	HintFacts HintKind = "facts"
	// HintSchedule: the next instant of a schedule may have changed.
	HintSchedule HintKind = "schedule"
	// HintDelivery: a notification waits for its delivery.
	HintDelivery HintKind = "delivery"
)

// Hint tells other processes that there may be something to do. It saves them
// waiting and may be lost: whoever listens looks at the tables each time that it
// connects (P25).
type Hint struct {
	Kind         HintKind  `json:"kind"`
	Organization uuid.UUID `json:"organization,omitzero"`
	// Object is the run or other thing.
	Object uuid.UUID `json:"object,omitzero"`
}

const hintChannel = "tranship"

// Hint sends a hint once the transaction has committed. Hints are sent apart
// from it because committing with a NOTIFY is one transaction at a time over the
// whole server.
func (t Tx) Hint(h Hint) { t.hints = append(t.hints, h) }

// pass gives the hints of a committed transaction to [Config.Hints], each once.
func (d *DB) pass(hints []Hint) {
	seen := map[Hint]bool{}
	for _, h := range hints {
		if !seen[h] {
			seen[h] = true
			d.config.Hints(h)
		}
	}
}

func queueHints(b *pgx.Batch, hints []Hint) {
	sent := map[Hint]bool{}
	for _, h := range hints {
		if sent[h] {
			continue
		}
		sent[h] = true
		body, err := json.Marshal(h)
		if err != nil {
			continue
		}
		b.Queue(`select pg_notify($1, $2)`, hintChannel, string(body))
	}
}
