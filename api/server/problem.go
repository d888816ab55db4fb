package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/pipeline"
)

// requestError tells that a request cannot be read.
type requestError struct{ err error }

func (e *requestError) Error() string { return e.err.Error() }
func (e *requestError) Unwrap() error { return e.err }

// parametersError holds what is wrong with the parameters of a request.
type parametersError struct{ problems []control.Problem }

func (e *parametersError) Error() string { return "a parameter or header is wrong" }

type tooLargeError struct{ limit int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the body is larger than %d bytes", e.limit)
}

var (
	errMediaType   = errors.New("the body must be application/json")
	errMatch       = errors.New("this change needs If-Match with the object's ETag, or *")
	errRoute       = errors.New("there is nothing under this path")
	errNotHere     = errors.New("this server does not serve this operation")
	errStarting    = errors.New("the server is starting")
	errUnsupported = errors.New("the path does not take this method")
)

// problemType is the beginning of every problem's type; the code follows.
const problemType = "urn:tranship:problem:"

// problemOf is the one place where errors become problems. retry is the value of
// Retry-After in seconds, 0: none.
func problemOf(err error) (p rest.Problem, retry int) {
	var (
		missing   *control.NotFoundError
		conflict  *control.ConflictError
		stale     *control.StaleVersionError
		forbidden *control.ForbiddenError
		invalid   *control.InvalidError
		away      *control.UnavailableError
		limit     *control.LimitError
		unknown   *control.UnauthenticatedError
		request   *requestError
		params    *parametersError
		large     *tooLargeError
		document  *pipeline.Error
		cursor    *control.CursorError
		changed   *control.RoleChangedError
	)
	set := func(status int, code, title string) {
		p.Status, p.Code, p.Type, p.Title, p.Detail = status, code, problemType+code, title, err.Error()
	}
	switch {
	case errors.As(err, &unknown):
		set(http.StatusUnauthorized, "unauthenticated", "No valid key or token")
		p.Hint = "send Authorization: Bearer with an API key (trk_…) or a token of the configured issuer"
	case errors.As(err, &forbidden), errors.As(err, &changed):
		set(http.StatusForbidden, "forbidden", "Not allowed")
	case errors.As(err, &missing):
		set(http.StatusNotFound, "not_found", "No such thing")
	case errors.Is(err, errRoute):
		set(http.StatusNotFound, "no_route", "No such path")
		p.Hint = "/openapi.json lists the operations"
	case errors.Is(err, errUnsupported):
		set(http.StatusMethodNotAllowed, "method_not_allowed", "Method not allowed")
	case errors.As(err, &stale):
		set(http.StatusPreconditionFailed, "stale_version", "Changed meanwhile")
		p.Version = stale.Current
	case errors.As(err, &conflict):
		set(http.StatusConflict, conflict.Code, "The state does not allow it")
		p.Detail, p.State, p.Hint = conflict.Message, conflict.State, conflict.Hint
	case errors.As(err, &invalid):
		set(http.StatusUnprocessableEntity, "invalid", "Not valid")
		p.Detail, p.Errors = "errors lists every problem", items(invalid.Problems)
	case errors.As(err, &document):
		set(http.StatusUnprocessableEntity, "invalid", "Not valid")
		p.Detail = "errors lists every problem"
		for _, d := range document.Problems {
			p.Errors = append(p.Errors, rest.ProblemItem{Path: d.Path, Message: d.Message, Hint: d.Hint})
		}
	case errors.As(err, &cursor):
		set(http.StatusBadRequest, "bad_parameter", "A parameter or header is wrong")
		p.Errors = []rest.ProblemItem{{Path: "query.after", Message: err.Error()}}
	case errors.As(err, &params):
		set(http.StatusBadRequest, "bad_parameter", "A parameter or header is wrong")
		p.Detail, p.Errors = "errors lists every problem", items(params.problems)
	case errors.As(err, &request):
		set(http.StatusBadRequest, "bad_request", "The request cannot be read")
	case errors.Is(err, errMatch):
		set(http.StatusPreconditionRequired, "precondition_required", "If-Match is missing")
	case errors.As(err, &large):
		set(http.StatusRequestEntityTooLarge, "too_large", "The body is too large")
	case errors.Is(err, errMediaType):
		set(http.StatusUnsupportedMediaType, "media_type", "The body is not JSON")
	case errors.As(err, &limit):
		set(http.StatusTooManyRequests, "too_many_requests", "Too many")
		retry = seconds(limit.RetryAfter)
	case errors.As(err, &away):
		set(http.StatusServiceUnavailable, "unavailable", "The database cannot be reached")
		p.Detail, p.Hint = "nothing was done", "repeat the request; with its Idempotency-Key if it has one"
		retry = max(seconds(away.RetryAfter), 1)
	case errors.Is(err, errStarting):
		set(http.StatusServiceUnavailable, "starting", "The server is starting")
		retry = 1
	case errors.Is(err, errNotHere):
		set(http.StatusNotImplemented, "not_implemented", "Not served here")
	default:
		set(http.StatusInternalServerError, "internal", "A defect of the server")
		p.Detail, p.Hint = "the server's log has the cause under the request id", engine.HintOf(err)
	}
	return p, retry
}

func items(problems []control.Problem) []rest.ProblemItem {
	out := make([]rest.ProblemItem, len(problems))
	for i, p := range problems {
		out[i] = rest.ProblemItem{Path: p.Path, Message: p.Message, Hint: p.Hint}
	}
	return out
}

func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// fail answers with the problem that an error is.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the caller is gone
	}
	p, retry := problemOf(err)
	p.RequestId = requestID(r.Context())
	if p.Status == http.StatusInternalServerError {
		h.config.Log.LogAttrs(r.Context(), slog.LevelError, "request failed",
			slog.String("request_id", p.RequestId), slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	if retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(retry))
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tranship"`)
	}
	text, err := json.Marshal(p)
	if err != nil {
		text = []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(text, '\n'))
}

// Starting answers any request while the server that will have a [Handler] is not
// ready for one.
func Starting(w http.ResponseWriter, r *http.Request) {
	h := &Handler{config: Config{Log: slog.New(slog.DiscardHandler)}}
	h.prepare(w, r, func(w http.ResponseWriter, r *http.Request) { h.fail(w, r, errStarting) })
}
