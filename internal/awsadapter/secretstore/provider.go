// Package secretstore resolves references to secrets that lie in Secrets Manager.
package secretstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/secrets"
)

// Name is that of the provider in references.
const Name = "secretsmanager"

// fresh is how long a secret that was read serves further fields of it: the fields
// of a connection are resolved one after the other. It is short, so that what was
// rotated is read again by the next attempt.
const fresh = 10 * time.Second

// Provider resolves "secretsmanager:<name>#<field>" to a field of the JSON in the
// secret <prefix>/<organization>/<name>, and "secretsmanager:<name>" to all of it.
// The organization in the name keeps tenants apart: no reference leads to a secret
// of another organization, or of the installation (invariant 9).
type Provider struct {
	client *secretsmanager.Client
	prefix string

	mu   sync.Mutex
	read map[string]entry
}

type entry struct {
	text  string
	until time.Time
}

var _ secrets.Provider = (*Provider)(nil)

// New resolves secrets whose names begin with a prefix, such as
// "tranship/connections".
func New(c aws.Config, prefix string) *Provider {
	return &Provider{client: secretsmanager.NewFromConfig(c), prefix: prefix, read: map[string]entry{}}
}

// Resolve implements [secrets.Provider].
func (p *Provider) Resolve(ctx context.Context, organization uuid.UUID, ref secrets.Ref) (string, error) {
	name, field, whole := strings.Cut(ref.Name(), "#")
	id := p.prefix + "/" + organization.String() + "/" + name
	if strings.Contains(name, "..") || strings.HasPrefix(name, "/") {
		return "", &secrets.UnresolvedError{Ref: ref, Reason: "this is not a name of a secret", Hint: "name it as it is called below " + p.prefix + "/" + organization.String()}
	}
	text, err := p.value(ctx, id)
	var missing *types.ResourceNotFoundException
	if errors.As(err, &missing) {
		return "", &secrets.UnresolvedError{Ref: ref, Reason: "Secrets Manager has no secret " + id, Hint: "create it, or correct the reference"}
	}
	if err != nil {
		return "", fmt.Errorf("read secret %s: %w", id, err)
	}
	if !whole {
		return text, nil
	}
	var fields map[string]any
	if json.Unmarshal([]byte(text), &fields) != nil {
		return "", &secrets.UnresolvedError{Ref: ref, Reason: "the secret " + id + " is no JSON object", Hint: "store the fields of a connection as one JSON object"}
	}
	switch v := fields[field].(type) {
	case string:
		return v, nil
	case float64, bool:
		return fmt.Sprint(v), nil
	}
	return "", &secrets.UnresolvedError{Ref: ref, Reason: fmt.Sprintf("the secret %s has no text in the field %q", id, field), Hint: "add it to the secret's JSON object"}
}

// value reads a secret, or takes it as it was read just now.
func (p *Provider) value(ctx context.Context, id string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if e, ok := p.read[id]; ok && now.Before(e.until) {
		return e.text, nil
	}
	out, err := p.client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &id})
	if err != nil {
		delete(p.read, id)
		return "", err
	}
	for other, e := range p.read {
		if !now.Before(e.until) {
			delete(p.read, other)
		}
	}
	p.read[id] = entry{text: aws.ToString(out.SecretString), until: now.Add(fresh)}
	return p.read[id].text, nil
}
