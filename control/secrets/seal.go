package secrets

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Sealed is a secret as the store keeps it.
type Sealed struct {
	Organization uuid.UUID
	Name         string
	// ID is that of the value: another value has another.
	ID uuid.UUID
	// Key names the master key that wraps DataKey.
	Key string
	// DataKey is the wrapped data key, Value what it encrypts; both begin with
	// their nonce. Organization, name and id are authenticated with both, so that
	// a row cannot stand in for another.
	DataKey, Value []byte
}

// Ref is how a sealed secret is referred to.
func (s Sealed) Ref() Ref { return Ref(ProviderLocal + ":" + s.Name) }

// Keyring wraps the data keys of secrets under a key that does not change hands.
type Keyring interface {
	// Current names the key that wraps.
	Current() string
	// Wrap wraps the data key of s, which names the key, so that it can be unwrapped
	// for that organization and name alone.
	Wrap(ctx context.Context, s Sealed, data []byte) ([]byte, error)
	// Unwrap returns the data key of s; [ErrWrapping] if it was wrapped for something
	// else or changed.
	Unwrap(ctx context.Context, s Sealed) ([]byte, error)
}

// ErrWrapping tells that a data key cannot be unwrapped.
var ErrWrapping = errors.New("its data key was changed, or belongs to something else")

// Seal encrypts a value as the organization's secret of that name.
func Seal(ctx context.Context, k Keyring, organization uuid.UUID, name, value string) (Sealed, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Sealed{}, fmt.Errorf("seal secret: %w", err)
	}
	s := Sealed{Organization: organization, Name: name, ID: id, Key: k.Current()}
	data := make([]byte, keySize)
	if _, err := rand.Read(data); err != nil {
		return Sealed{}, fmt.Errorf("seal secret: %w", err)
	}
	if s.Value, err = encrypt(data, []byte(value), s.bind("value")); err != nil {
		return Sealed{}, fmt.Errorf("seal secret: %w", err)
	}
	if s.DataKey, err = k.Wrap(ctx, s, data); err != nil {
		return Sealed{}, fmt.Errorf("seal secret: %w", err)
	}
	return s, nil
}

// Open decrypts a secret.
func Open(ctx context.Context, k Keyring, s Sealed) (string, error) {
	data, err := k.Unwrap(ctx, s)
	if err != nil {
		return "", fmt.Errorf("open secret %q: %w", s.Name, err)
	}
	value, err := decrypt(data, s.Value, s.bind("value"))
	if err != nil {
		return "", fmt.Errorf("open secret %q: it was changed, or belongs to something else", s.Name)
	}
	return string(value), nil
}

// rewrap wraps a secret's data key under the current key.
func rewrap(ctx context.Context, k Keyring, s Sealed) (Sealed, error) {
	data, err := k.Unwrap(ctx, s)
	if err != nil {
		return Sealed{}, fmt.Errorf("open secret %q: %w", s.Name, err)
	}
	s.Key = k.Current()
	if s.DataKey, err = k.Wrap(ctx, s, data); err != nil {
		return Sealed{}, fmt.Errorf("wrap secret %q: %w", s.Name, err)
	}
	return s, nil
}

// bind is what a ciphertext is authenticated with.
func (s Sealed) bind(what string) []byte {
	return []byte("tranship secret " + what + "\x00" + s.Organization.String() + "\x00" + s.ID.String() + "\x00" + s.Name)
}

func encrypt(key, plain, bound []byte) ([]byte, error) {
	g, err := gcm(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, g.NonceSize(), g.NonceSize()+len(plain)+g.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return g.Seal(nonce, nonce, plain, bound), nil
}

func decrypt(key, sealed, bound []byte) ([]byte, error) {
	g, err := gcm(key)
	if err != nil {
		return nil, err
	}
	if len(sealed) < g.NonceSize() {
		return nil, errors.New("too short")
	}
	return g.Open(nil, sealed[:g.NonceSize()], sealed[g.NonceSize():], bound)
}

func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
