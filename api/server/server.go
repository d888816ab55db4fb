// Package server serves the API that api/openapi.yaml describes: one handler for a
// plain HTTP server and for a function. The document is what routes, checks and
// decodes requests; the handlers only translate between it and the services of
// package control, one file for each tag.
//
// A request passes, in this order: request id and headers, route, readiness, key
// or token, rate, permission, parameters, body (size, type, strict JSON, schema),
// idempotency key, handler. Each step answers with a problem (RFC 9457).
package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/inspections"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/control/secrets"
)

// Config is what a handler needs.
type Config struct {
	Services
	// Authenticate turns a bearer text into an actor; *control.UnauthenticatedError
	// if it is not valid. Nil: Access does.
	Authenticate func(ctx context.Context, bearer string) (control.Actor, error)
	// Confirm checks in a transaction that the caller may still come in, where the
	// operation itself had none. Nil: Access does, if there is one.
	Confirm func(ctx context.Context, a control.Actor) error
	// Ready returns an error until the database is migrated and bootstrapped; nil:
	// always ready.
	Ready func(ctx context.Context) error
	// FactsPause is how long a caller is asked to rest (Retry-After) who waited for
	// facts of a run in vain, where waiting costs something; 0: not at all.
	FactsPause time.Duration
	// Version is the program's, for /healthz.
	Version string
	// MaxBody bounds a request's body in bytes; 0: 2 MiB.
	MaxBody int64
	// Rate is how many requests a second each key may send, and Burst how many at
	// once; 0: 200 and 400. Below 0: no limit.
	Rate  float64
	Burst int
	// Log receives failures that a caller is not told the cause of; nil: none.
	Log *slog.Logger
	// Now is the time; nil: time.Now.
	Now func() time.Time
}

// Services are what the operations work on. An operation whose service is nil
// answers 501.
type Services struct {
	Access        *access.Service
	Connectors    connections.Catalog
	Connections   *connections.Service
	Secrets       *secrets.Service
	Inspections   *inspections.Service
	Pipelines     *pipelines.Service
	Runs          *runs.Service
	Schedules     *schedules.Service
	Notifications *notify.Service
	Metrics       *projection.Service
}

// has tells whether the operations of a tag have their service.
func (s Services) has(tag string) bool {
	switch tag {
	case "access":
		return s.Access != nil
	case "runs":
		return s.Runs != nil
	case "connectors":
		return s.Connectors != nil
	case "connections":
		return s.Connections != nil
	case "secrets":
		return s.Secrets != nil
	case "inspections":
		return s.Inspections != nil
	case "pipelines", "versions", "validations":
		return s.Pipelines != nil
	case "schedules":
		return s.Schedules != nil
	case "notifications":
		return s.Notifications != nil
	case "metrics":
		return s.Metrics != nil
	}
	return true
}

// Handler is the API's one handler.
type Handler struct {
	config Config
	limits *limits
	// outer routes to the checks, inner to the operations.
	outer, inner *http.ServeMux
}

// operations implements the generated interface, one file for each tag.
type operations struct {
	Services
	version    string
	factsPause time.Duration
}

var _ rest.StrictServerInterface = (*operations)(nil)

// New returns the handler. It fails only if the document cannot be read, which a
// test excludes.
func New(config Config) (*Handler, error) {
	if config.MaxBody == 0 {
		config.MaxBody = 2 << 20
	}
	if config.Rate == 0 {
		config.Rate, config.Burst = 200, 400
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Access != nil && config.Authenticate == nil {
		config.Authenticate, config.Confirm = config.Access.Authenticate, config.Access.Confirm
	}
	routes, err := loadRoutes()
	if err != nil {
		return nil, err
	}
	h := &Handler{
		config: config, limits: newLimits(config.Rate, config.Burst, config.Now),
		outer: http.NewServeMux(), inner: http.NewServeMux(),
	}
	fail := func(w http.ResponseWriter, r *http.Request, err error) { h.fail(w, r, err) }
	unreadable := func(w http.ResponseWriter, r *http.Request, err error) { h.fail(w, r, &requestError{err}) }
	strict := rest.NewStrictHandlerWithOptions(
		&operations{Services: config.Services, version: config.Version, factsPause: config.FactsPause},
		[]rest.StrictMiddlewareFunc{h.finish},
		rest.StrictHTTPServerOptions{RequestErrorHandlerFunc: unreadable, ResponseErrorHandlerFunc: fail},
	)
	rest.HandlerWithOptions(strict, rest.StdHTTPServerOptions{BaseRouter: h.inner, ErrorHandlerFunc: unreadable})
	for pattern, route := range routes.byPattern {
		h.outer.HandleFunc(pattern, h.guarded(route))
	}
	h.outer.HandleFunc("GET /docs", serveDocs)
	h.outer.HandleFunc("/", h.unrouted)
	return h, nil
}
