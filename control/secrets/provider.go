package secrets

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Provider resolves the references of one kind.
type Provider interface {
	// Resolve returns the secret's value; *UnresolvedError if there is none.
	Resolve(ctx context.Context, organization uuid.UUID, ref Ref) (string, error)
}

// Secrets resolves references by their provider's name.
type Secrets map[string]Provider

// Resolve returns the value that a reference of the organization stands for.
func (s Secrets) Resolve(ctx context.Context, organization uuid.UUID, ref Ref) (string, error) {
	p, ok := s[ref.Provider()]
	if !ok {
		return "", &UnresolvedError{Ref: ref, Reason: "this installation has no such provider", Hint: "providers: " + strings.Join(s.Providers(), ", ")}
	}
	return p.Resolve(ctx, organization, ref)
}

// Providers are the names of the providers, sorted.
func (s Secrets) Providers() []string {
	out := make([]string, 0, len(s))
	for name := range s {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// DefaultEnv are the variables that Env gives out by default. The process has
// others that are nobody's business, such as its own database's URL.
const DefaultEnv = "TRANSHIP_SECRET_*"

// Env resolves "env:NAME" from the environment of the process.
type Env struct {
	// Lookup is os.LookupEnv.
	Lookup func(name string) (string, bool)
	// Allow are names or patterns (*, ?) of the variables that may be referred to;
	// none: [DefaultEnv].
	Allow []string
}

var _ Provider = (*Env)(nil)

// Resolve implements [Provider].
func (e *Env) Resolve(_ context.Context, _ uuid.UUID, ref Ref) (string, error) {
	allow := e.Allow
	if len(allow) == 0 {
		allow = []string{DefaultEnv}
	}
	if !slices.ContainsFunc(allow, func(p string) bool { ok, err := path.Match(p, ref.Name()); return ok && err == nil }) {
		return "", &UnresolvedError{Ref: ref, Reason: "the operator has not released this variable", Hint: "released are: " + strings.Join(allow, ", ")}
	}
	v, ok := e.Lookup(ref.Name())
	if !ok {
		return "", &UnresolvedError{Ref: ref, Reason: "the variable is not set", Hint: "set it for the service's process"}
	}
	return v, nil
}

// Local resolves secrets that are kept encrypted in the store.
type Local struct {
	Store   Store
	Keyring Keyring
}

var _ Provider = (*Local)(nil)

// Resolve implements [Provider].
func (l *Local) Resolve(ctx context.Context, organization uuid.UUID, ref Ref) (string, error) {
	s, err := l.Store.SealedSecret(ctx, organization, ref.Name())
	var missing *control.NotFoundError
	if errors.As(err, &missing) {
		return "", &UnresolvedError{Ref: ref, Reason: "there is no such secret", Hint: "store it again"}
	}
	if err != nil {
		return "", err
	}
	return Open(ctx, l.Keyring, s)
}

// rewrapBatch is how many secrets are wrapped between two looks at the store.
const rewrapBatch = 100

// Rewrap wraps every secret under the current master key and returns how many
// were under another one. It may be interrupted and repeated.
func (l *Local) Rewrap(ctx context.Context) (int, error) {
	n := 0
	for {
		batch, err := l.Store.SecretsNotUnder(ctx, l.Keyring.Current(), rewrapBatch)
		if err != nil {
			return n, fmt.Errorf("find secrets to wrap: %w", err)
		}
		if len(batch) == 0 {
			return n, nil
		}
		for _, s := range batch {
			next, err := rewrap(ctx, l.Keyring, s)
			if err != nil {
				return n, err
			}
			if err := l.Store.RewrapSecret(ctx, next, s.Key); err != nil {
				return n, fmt.Errorf("wrap secret %q: %w", s.Name, err)
			}
			n++
		}
	}
}
