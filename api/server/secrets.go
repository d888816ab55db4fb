package server

import (
	"context"
	"errors"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/secrets"
)

func secretOf(s secrets.Secret) rest.Secret {
	return rest.Secret{Name: s.Name, Provider: secrets.ProviderLocal, Version: s.Version, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt}
}

// secretMatch is the version of a secret that a change means.
func secretMatch(header string) int64 {
	if n := ifMatch(header); n != 0 {
		return n
	}
	return secrets.AnyVersion
}

// ListSecrets lists secrets.
func (o *operations) ListSecrets(ctx context.Context, r rest.ListSecretsRequestObject) (rest.ListSecretsResponseObject, error) {
	l, err := o.Secrets.List(ctx, actorOf(ctx), page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListSecrets200JSONResponse{Items: each(l.Items, secretOf), Next: next(l.Next)}, nil
}

// GetSecret answers with what is told of a secret.
func (o *operations) GetSecret(ctx context.Context, r rest.GetSecretRequestObject) (rest.GetSecretResponseObject, error) {
	s, err := o.Secrets.Get(ctx, actorOf(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return rest.GetSecret200JSONResponse(secretOf(s)), nil
}

// PutSecret stores a value. Without If-Match there must be none of that name.
func (o *operations) PutSecret(ctx context.Context, r rest.PutSecretRequestObject) (rest.PutSecretResponseObject, error) {
	version := int64(0)
	if r.Params.IfMatch != "" {
		version = secretMatch(r.Params.IfMatch)
	}
	s, err := o.Secrets.Put(ctx, actorOf(ctx), r.Name, r.Body.Value, version)
	var stale *control.StaleVersionError
	if errors.As(err, &stale) && version == 0 {
		return nil, errMatch
	}
	if err != nil {
		return nil, err
	}
	return rest.PutSecret200JSONResponse(secretOf(s)), nil
}

// DeleteSecret forgets a secret.
func (o *operations) DeleteSecret(ctx context.Context, r rest.DeleteSecretRequestObject) (rest.DeleteSecretResponseObject, error) {
	if err := o.Secrets.Delete(ctx, actorOf(ctx), r.Name, secretMatch(r.Params.IfMatch)); err != nil {
		return nil, err
	}
	return rest.DeleteSecret204Response{}, nil
}
