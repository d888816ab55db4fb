// Package parameter keeps what an installation has one of in SSM parameters that
// are encrypted: the key that signs API keys, and the first of these.
package parameter

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

// ErrMissing tells that there is no such parameter.
var ErrMissing = errors.New("there is no such parameter")

// Store reads and writes parameters.
type Store struct{ client *ssm.Client }

// New makes a store.
func New(c aws.Config) *Store { return &Store{ssm.NewFromConfig(c)} }

// Get returns a parameter's value; [ErrMissing] if it is not there.
func (s *Store) Get(ctx context.Context, name string) (string, error) {
	out, err := s.client.GetParameter(ctx, &ssm.GetParameterInput{Name: &name, WithDecryption: aws.Bool(true)})
	var missing *types.ParameterNotFound
	if errors.As(err, &missing) {
		return "", fmt.Errorf("read parameter %s: %w", name, ErrMissing)
	}
	if err != nil {
		return "", fmt.Errorf("read parameter %s: %w", name, err)
	}
	return aws.ToString(out.Parameter.Value), nil
}

// Put writes a parameter, over what it may have been.
func (s *Store) Put(ctx context.Context, name, value, description string) error {
	_, err := s.put(ctx, name, value, description, true)
	return err
}

// Make writes a parameter unless it is there already, which made tells.
func (s *Store) Make(ctx context.Context, name, value, description string) (made bool, err error) {
	return s.put(ctx, name, value, description, false)
}

func (s *Store) put(ctx context.Context, name, value, description string, over bool) (bool, error) {
	_, err := s.client.PutParameter(ctx, &ssm.PutParameterInput{
		Name: &name, Value: &value, Description: &description, Type: types.ParameterTypeSecureString, Overwrite: &over,
	})
	var there *types.ParameterAlreadyExists
	if errors.As(err, &there) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write parameter %s: %w", name, err)
	}
	return true, nil
}

// Keys reads a parameter of secret keys: one a line in base64, the one that signs
// first.
func (s *Store) Keys(ctx context.Context, name string) ([][]byte, error) {
	text, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	for i, line := range strings.Fields(text) {
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			// The decoder's error may tell of the key (invariant 10).
			return nil, fmt.Errorf("line %d of the parameter %s is not base64", i+1, name)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
