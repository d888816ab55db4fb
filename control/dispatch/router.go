package dispatch

import "context"

// Router sends each command to the queue of its compute.
type Router struct {
	// Lambda takes all that Fargate does not; Fargate may be nil.
	Lambda, Fargate CommandQueue
}

var _ CommandQueue = Router{}

// Send implements [CommandQueue].
func (r Router) Send(ctx context.Context, c Command) error {
	if c.Compute == Fargate && r.Fargate != nil {
		return r.Fargate.Send(ctx, c)
	}
	return r.Lambda.Send(ctx, c)
}
