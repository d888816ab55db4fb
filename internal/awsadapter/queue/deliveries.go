package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/notify"
)

// Deliveries carries notifications to the function that sends them.
type Deliveries struct{ *Queue }

var _ notify.Queue = Deliveries{}

// Delivery is the message of one delivery.
type Delivery struct {
	Organization uuid.UUID `json:"organization"`
	Rule         uuid.UUID `json:"rule"`
	Delivery     uuid.UUID `json:"delivery"`
}

// Enqueue implements [notify.Queue].
func (q Deliveries) Enqueue(ctx context.Context, after time.Duration, refs ...notify.DeliveryRef) error {
	messages := make([]Message, len(refs))
	for i, r := range refs {
		body, err := json.Marshal(Delivery(r))
		if err != nil {
			return fmt.Errorf("encode delivery %s: %w", r.Delivery, err)
		}
		messages[i] = Message{Body: string(body), Group: r.Organization.String(), Delay: after}
	}
	return q.Send(ctx, messages...)
}
