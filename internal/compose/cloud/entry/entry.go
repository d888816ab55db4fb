// Package entry gives a function what it knows callers by. It links no database.
package entry

import (
	"context"
	"fmt"

	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/internal/awsadapter/parameter"
	"github.com/tranship-io/tranship/internal/compose/cloud"
)

// Entry checks keys and tokens.
type Entry struct {
	Signer *access.Signer
	OIDC   []access.OIDC
}

// Open reads the environment, and the key that signs API keys.
func Open(ctx context.Context, f *cloud.Function) (*Entry, error) {
	e := &Entry{}
	name := f.Env.Need("TRANSHIP_SIGNING_PARAMETER")
	f.Env.JSON("TRANSHIP_OIDC", &e.OIDC)
	if err := f.Env.Err(); err != nil {
		return nil, err
	}
	keys, err := parameter.New(f.AWS).Keys(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read the key that signs API keys (the function migrate makes it): %w", err)
	}
	if e.Signer, err = access.NewSigner(keys); err != nil {
		return nil, fmt.Errorf("read the key that signs API keys from the parameter %s: %w", name, err)
	}
	return e, nil
}
