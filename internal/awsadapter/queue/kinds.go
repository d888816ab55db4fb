package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/projection"
)

// Commands carries attempts to workers: to those on Lambda straight, to those on
// Fargate through the function that starts tasks.
type Commands struct{ *Queue }

var _ dispatch.CommandQueue = Commands{}

// Send implements [dispatch.CommandQueue]. The organization is the message's
// group, so that one with many runs does not keep the others waiting.
func (q Commands) Send(ctx context.Context, c dispatch.Command) error {
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode %s: %w", c, err)
	}
	return q.Queue.Send(ctx, Message{Body: string(body), Group: c.Organization.String()})
}

// Facts carries facts to the projection, in the order of each run.
type Facts struct{ *Queue }

var _ projection.FactQueue = Facts{}

// SendFacts implements [projection.FactQueue]. Within 5 minutes the queue drops a
// repetition, unless it is one that is meant: again.
func (q Facts) SendFacts(ctx context.Context, f projection.Told, again bool) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode facts of run %s: %w", f.Run, err)
	}
	if len(body) > maxBytes {
		// Who is told reads the facts themselves.
		f.Facts = nil
		if body, err = json.Marshal(f); err != nil {
			return fmt.Errorf("encode facts of run %s: %w", f.Run, err)
		}
	}
	once := fmt.Sprintf("%s:%d", f.Run, f.Through)
	if again {
		once += ":" + uuid.NewString()
	}
	return q.Queue.Send(ctx, Message{Body: string(body), Group: f.Run.String(), Once: once})
}

// Dead is a queue of dead letters. Fifo tells whether it is a FIFO queue.
type Dead struct {
	*Queue
	Fifo bool
}

// maxReason bounds the reason that goes along.
const maxReason = 1024

// Bury stores a message that cannot be handled.
func (q Dead) Bury(ctx context.Context, body, group, reason string) error {
	m := Message{Body: body, Reason: strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")}
	if q.Fifo {
		m.Group, m.Once = group, uuid.NewString()
	}
	return q.Queue.Send(ctx, m)
}
