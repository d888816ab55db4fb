package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"path"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control"
)

type contextKey int

const (
	keyRequest contextKey = iota
	keyRoute
)

// requestID is the id that answer, log and audit share.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(keyRequest).(string)
	return id
}

// actorOf is who sent the request.
func actorOf(ctx context.Context) control.Actor {
	a, _ := control.CallerOf(ctx)
	return a
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.prepare(w, r, h.outer.ServeHTTP)
}

// prepare gives a request its id, and the answer the headers that all have.
func (h *Handler) prepare(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	id := r.Header.Get("X-Request-Id")
	if !plainID(id) {
		id = uuid.NewString()
	}
	r = r.WithContext(context.WithValue(r.Context(), keyRequest, id))
	head := w.Header()
	head.Set("X-Request-Id", id)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-store")
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.TLS != nil {
		head.Set("Strict-Transport-Security", "max-age=31536000")
	}
	if r.URL.Path != "/" && path.Clean(r.URL.Path) != r.URL.Path {
		h.fail(w, r, errRoute)
		return
	}
	next(w, r)
}

// plainID tells whether a request id of the caller's can be taken over.
func plainID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	return strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.") == ""
}

// unrouted answers what matches no operation.
func (h *Handler) unrouted(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if _, pattern := h.outer.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host}); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		h.fail(w, r, errRoute)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	h.fail(w, r, errUnsupported)
}

// guarded runs the checks of a route before its operation.
func (h *Handler) guarded(route *route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		checked, err := h.check(w, r, route)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		h.inner.ServeHTTP(w, checked)
	}
}

func (h *Handler) check(w http.ResponseWriter, r *http.Request, route *route) (*http.Request, error) {
	ctx := context.WithValue(r.Context(), keyRoute, route)
	if h.config.Ready != nil && route.path != "/openapi.json" {
		if err := h.config.Ready(ctx); err != nil {
			return nil, errors.Join(errStarting, err)
		}
	}
	if route.public {
		if err := h.limits.take("address " + addressOf(r)); err != nil {
			return nil, err
		}
	} else {
		actor, err := h.authenticate(ctx, r)
		if err != nil {
			return nil, err
		}
		if err := h.limits.take(identityOf(actor)); err != nil {
			return nil, err
		}
		if route.permission != "" {
			if err := control.Authorize(actor, route.permission); err != nil {
				return nil, err
			}
		}
		ctx = control.WithCaller(ctx, actor)
	}
	r = r.WithContext(ctx)
	if problems := route.check(r); len(problems) > 0 {
		return nil, &parametersError{problems}
	}
	if route.needsMatch && r.Header.Get("If-Match") == "" && !route.creates() {
		return nil, errMatch
	}
	text, err := h.readBody(w, r, route)
	if err != nil {
		return nil, err
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" && r.Method == http.MethodPost {
		sum := sha256.New()
		_, _ = io.WriteString(sum, r.Method+" "+r.URL.RequestURI()+"\n")
		_, _ = sum.Write(compact(text))
		r = r.WithContext(control.WithIdempotency(ctx, control.Idempotency{Key: key, Hash: sum.Sum(nil)}))
	}
	return r, nil
}

// creates tells whether a PUT may also make its object, which then has no ETag.
func (r *route) creates() bool { return r.id == "putSecret" }

func (h *Handler) authenticate(ctx context.Context, r *http.Request) (control.Actor, error) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return control.Actor{}, &control.UnauthenticatedError{Reason: "the request carries no bearer key or token"}
	}
	actor, err := h.config.Authenticate(ctx, strings.TrimSpace(token))
	actor.RequestID = requestID(ctx)
	return actor, err
}

// identityOf is whose requests are counted together.
func identityOf(a control.Actor) string {
	if a.Key != uuid.Nil {
		return "key " + a.Key.String()
	}
	return string(a.Kind) + " " + a.ID.String()
}

func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// compact is a JSON text without insignificant space, so that a repetition that
// only formats it anew is the same request.
func compact(text []byte) []byte {
	value, err := parseJSON(text)
	if err != nil {
		return bytes.TrimSpace(text)
	}
	out, err := marshal(value)
	if err != nil {
		return bytes.TrimSpace(text)
	}
	return out
}

// ask runs an operation. If the caller's role turns out to be a lesser one now, it
// runs as that. An operation that needed no transaction is followed by one that
// checks the caller.
func (h *Handler) ask(ctx context.Context, route *route, do func(context.Context) (any, error)) (any, error) {
	if !h.config.has(route.tag) {
		return nil, errNotHere
	}
	try := func(ctx context.Context) (any, error) {
		response, err := do(ctx)
		if route.public || control.CallerConfirmed(ctx) || h.config.Confirm == nil {
			return response, err
		}
		if refused := h.config.Confirm(ctx, actorOf(ctx)); refused != nil {
			return nil, refused
		}
		return response, err
	}
	response, err := try(ctx)
	var changed *control.RoleChangedError
	if !errors.As(err, &changed) {
		return response, err
	}
	actor := actorOf(ctx)
	actor.Role = changed.Role
	if route.permission != "" {
		if err := control.Authorize(actor, route.permission); err != nil {
			return nil, err
		}
	}
	return try(control.WithCaller(ctx, actor))
}

// finish runs an operation and sets what answers have in common: the ETag of a
// versioned object, and the Location of a new one.
func (h *Handler) finish(next rest.StrictHandlerFunc, _ string) rest.StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		route, ok := ctx.Value(keyRoute).(*route)
		if !ok {
			return nil, errors.New("the request came around the checks")
		}
		response, err := h.ask(ctx, route, func(ctx context.Context) (any, error) { return next(ctx, w, r, request) })
		if err != nil {
			return nil, err
		}
		v := reflect.ValueOf(response)
		if v.Kind() != reflect.Struct {
			return response, nil
		}
		if f := v.FieldByName("Version"); f.IsValid() && f.Kind() == reflect.Int64 {
			w.Header().Set("ETag", etag(f.Int()))
		}
		if id, ok := idOf(v); ok && r.Method == http.MethodPost && !strings.Contains(route.path, "{") {
			w.Header().Set("Location", route.path+"/"+id.String())
		}
		return response, nil
	}
}

// idOf is the id of the object that an answer is or holds as its item.
func idOf(v reflect.Value) (uuid.UUID, bool) {
	if f := v.FieldByName("Item"); f.IsValid() && f.Kind() == reflect.Struct {
		v = f
	}
	f := v.FieldByName("Id")
	if !f.IsValid() {
		return uuid.Nil, false
	}
	id, ok := f.Interface().(uuid.UUID)
	return id, ok
}

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// ifMatch is the version that a change means; 0: whatever stands.
func ifMatch(header string) int64 {
	n, err := strconv.ParseInt(strings.Trim(header, `"`), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// page is the part of a list that is asked for.
func page(limit int, after string) control.Page {
	if limit == 0 {
		limit = 50
	}
	return control.Page{Limit: limit, After: after}
}

// next is a list's cursor as answers have it.
func next(cursor string) *string {
	if cursor == "" {
		return nil
	}
	return &cursor
}
