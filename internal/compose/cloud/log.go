package cloud

import (
	"context"
	"io"
	"log/slog"

	"github.com/aws/aws-lambda-go/lambdacontext"
)

// newLog writes JSON lines, each with the request id of the invocation that its
// context belongs to.
func newLog(w io.Writer, level slog.Level, function string) *slog.Logger {
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	return slog.New(requests{h}).With("function", function)
}

// requests adds the invocation's request id to log records.
type requests struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h requests) Handle(ctx context.Context, r slog.Record) error {
	if c, ok := lambdacontext.FromContext(ctx); ok {
		r = r.Clone()
		r.AddAttrs(slog.String("request_id", c.AwsRequestID))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h requests) WithAttrs(attrs []slog.Attr) slog.Handler {
	return requests{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h requests) WithGroup(name string) slog.Handler { return requests{h.Handler.WithGroup(name)} }
