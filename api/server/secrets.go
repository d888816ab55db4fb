package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
)

func (o *operations) ListSecrets(context.Context, rest.ListSecretsRequestObject) (rest.ListSecretsResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) DeleteSecret(context.Context, rest.DeleteSecretRequestObject) (rest.DeleteSecretResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetSecret(context.Context, rest.GetSecretRequestObject) (rest.GetSecretResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) PutSecret(context.Context, rest.PutSecretRequestObject) (rest.PutSecretResponseObject, error) {
	return nil, errNotHere
}
