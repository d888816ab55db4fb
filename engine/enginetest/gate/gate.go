// Package gate is where simulated systems can be interrupted: every effect of
// the in-memory source, sink and State passes a gate, at which a simulation
// delays it, lets it fail before or after it happened, or ends its process.
package gate

import "context"

// Call names an effect: the operation ("sink.apply.commit") and what it works on.
// Two calls of one process that can be under way at the same time differ in it.
type Call struct {
	Op, Subject string
}

// Func decides about one effect. It runs effect at most once and returns its
// error, or an error of its own: the effect may have happened all the same.
type Func func(ctx context.Context, c Call, effect func() error) error

// Open lets everything pass.
func Open(ctx context.Context, _ Call, effect func() error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return effect()
}
