package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tranship-io/tranship/control"
)

// Verifier checks keys and tokens without a store: that they are genuine and have
// not expired. Whether a key is revoked, or its role still holds, only the store
// knows.
type Verifier struct {
	signer  *Signer
	issuers []*issuer
	now     func() time.Time
}

// NewVerifier makes a verifier; now nil: time.Now. Issuers are asked for their keys
// when the first token comes, so that an issuer that is away keeps nobody else out.
func NewVerifier(signer *Signer, issuers []OIDC, now func() time.Time) (*Verifier, error) {
	if signer == nil {
		return nil, errors.New("verifying keys needs a signer")
	}
	if now == nil {
		now = time.Now
	}
	v := &Verifier{signer: signer, now: now}
	for i, o := range issuers {
		one, err := newIssuer(o, now)
		if err != nil {
			return nil, fmt.Errorf("OIDC issuer %d: %w", i+1, err)
		}
		v.issuers = append(v.issuers, one)
	}
	return v, nil
}

// Pass is what a bearer text proves.
type Pass struct {
	// Claims are a key's; nil for a token.
	Claims *Claims
	// Identity is whom a token vouches for, Organization the key of the organization
	// that it names; empty for a key.
	Identity     Identity
	Organization string
}

// Verify returns what a bearer text proves, else *control.UnauthenticatedError, or
// *control.UnavailableError if an issuer cannot be asked for its keys.
func (v *Verifier) Verify(ctx context.Context, bearer string) (Pass, error) {
	if strings.HasPrefix(bearer, TokenPrefix) {
		c, err := v.signer.Verify(bearer, v.now())
		return Pass{Claims: &c}, err
	}
	iss := issuerOf(bearer)
	at := slices.IndexFunc(v.issuers, func(i *issuer) bool { return i.Issuer == iss })
	if iss == "" || at < 0 {
		return Pass{}, &control.UnauthenticatedError{Reason: "the key or token is not valid"}
	}
	who, organization, err := v.issuers[at].verify(ctx, bearer)
	return Pass{Identity: who, Organization: organization}, err
}
