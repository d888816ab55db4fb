package secrets

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tranship-io/tranship/control"
)

// Ref names a secret: "<provider>:<name>", such as "env:SHOP_URL" or
// "local:shop-source.url". It is no secret itself.
type Ref string

// The providers that this build knows.
const (
	ProviderEnv   = "env"
	ProviderLocal = "local"
)

var refPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}:[^\s]{1,512}$`)

// Parse checks the form of a reference.
func Parse(s string) (Ref, error) {
	if !refPattern.MatchString(s) {
		// The text may be the secret itself, put in the wrong place: it is not repeated.
		return "", control.Invalid("", "write <provider>:<name>, such as env:SHOP_URL", "this is no reference to a secret")
	}
	return Ref(s), nil
}

// Provider is the part before the colon.
func (r Ref) Provider() string {
	p, _, _ := strings.Cut(string(r), ":")
	return p
}

// Name is the part after the colon.
func (r Ref) Name() string {
	_, n, _ := strings.Cut(string(r), ":")
	return n
}

// UnresolvedError tells that a secret cannot be had; it holds the reference, never
// a value.
type UnresolvedError struct {
	Ref    Ref
	Reason string
	Hint   string
}

func (e *UnresolvedError) Error() string {
	return fmt.Sprintf("the secret %s cannot be resolved: %s", e.Ref, e.Reason)
}
