// Package kmskeys wraps the data keys of secrets under a key of KMS that never
// leaves it.
package kmskeys

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/tranship-io/tranship/control/secrets"
)

// Keyring wraps with one key. Older ones of its rotation unwrap by themselves; a
// secret that another key wrapped is unwrapped with that one, as long as rights on
// it remain.
type Keyring struct {
	client *kms.Client
	key    string
}

var _ secrets.Keyring = (*Keyring)(nil)

// New makes a keyring of the key with an ARN.
func New(c aws.Config, key string) *Keyring {
	return &Keyring{client: kms.NewFromConfig(c), key: key}
}

// Current implements [secrets.Keyring].
func (k *Keyring) Current() string { return k.key }

// bound is what KMS authenticates with a data key, and writes into its log.
func bound(s secrets.Sealed) map[string]string {
	return map[string]string{"organization": s.Organization.String(), "name": s.Name}
}

// Wrap implements [secrets.Keyring].
func (k *Keyring) Wrap(ctx context.Context, s secrets.Sealed, data []byte) ([]byte, error) {
	out, err := k.client.Encrypt(ctx, &kms.EncryptInput{KeyId: &s.Key, Plaintext: data, EncryptionContext: bound(s)})
	if err != nil {
		return nil, fmt.Errorf("wrap a data key with %s: %w", s.Key, err)
	}
	return out.CiphertextBlob, nil
}

// Unwrap implements [secrets.Keyring].
func (k *Keyring) Unwrap(ctx context.Context, s secrets.Sealed) ([]byte, error) {
	out, err := k.client.Decrypt(ctx, &kms.DecryptInput{KeyId: &s.Key, CiphertextBlob: s.DataKey, EncryptionContext: bound(s)})
	var changed *types.InvalidCiphertextException
	var other *types.IncorrectKeyException
	if errors.As(err, &changed) || errors.As(err, &other) {
		return nil, secrets.ErrWrapping
	}
	if err != nil {
		return nil, fmt.Errorf("unwrap a data key with %s: %w", s.Key, err)
	}
	return out.Plaintext, nil
}
