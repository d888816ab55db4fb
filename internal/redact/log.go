package redact

import (
	"context"
	"fmt"
	"log/slog"
)

// Logger returns a logger that cleans what it is told before log is.
func (r *Redactor) Logger(log *slog.Logger) *slog.Logger {
	return slog.New(&handler{r, log.Handler()})
}

type handler struct {
	r    *Redactor
	next slog.Handler
}

// Enabled implements [slog.Handler].
func (h *handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// Handle implements [slog.Handler].
func (h *handler) Handle(ctx context.Context, rec slog.Record) error {
	out := slog.NewRecord(rec.Time, rec.Level, h.r.Text(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(h.attr(a))
		return true
	})
	return h.next.Handle(ctx, out)
}

// WithAttrs implements [slog.Handler].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.attr(a)
	}
	return &handler{h.r, h.next.WithAttrs(clean)}
}

// WithGroup implements [slog.Handler].
func (h *handler) WithGroup(name string) slog.Handler { return &handler{h.r, h.next.WithGroup(name)} }

// attr cleans a value that has a text; one without a secret stays what it is.
func (h *handler) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString, slog.KindAny:
		text := v.String()
		if v.Kind() == slog.KindAny {
			text = fmt.Sprint(v.Any())
		}
		if clean := h.r.Text(text); clean != text {
			v = slog.StringValue(clean)
		}
	case slog.KindGroup:
		group := make([]slog.Attr, len(v.Group()))
		for i, x := range v.Group() {
			group[i] = h.attr(x)
		}
		v = slog.GroupValue(group...)
	default:
	}
	return slog.Attr{Key: a.Key, Value: v}
}
