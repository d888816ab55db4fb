package access

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// TokenPrefix begins the text of every key, so that scanners for leaked secrets
// know one when they see it.
const TokenPrefix = "trk_"

// Purpose is what the MAC's keys are derived for from the master keys
// (secrets.MasterKeys.Derive).
const Purpose = "api keys"

const (
	tokenVersion = 1
	nonceSize    = 16
	macSize      = sha256.Size
	// shownPrefix is how many characters of a key's text may be shown: they are
	// of the nonce alone.
	shownPrefix = 12
	maxToken    = 8 << 10
)

// Claims are what a key says of itself.
type Claims struct {
	Organization uuid.UUID
	Account      uuid.UUID
	Key          uuid.UUID
	Role         control.Role
	// Scopes narrow the role; empty: all of it.
	Scopes []string
	// ExpiresAt is exact to the second; zero: never.
	ExpiresAt time.Time
}

// Signer makes and checks the texts of keys. It does not change once made.
type Signer struct{ keys [][]byte }

// NewSigner makes a signer of secret keys of at least 32 bytes: the first one
// signs, all are accepted, so that a master key can be replaced.
func NewSigner(keys [][]byte) (*Signer, error) {
	if len(keys) == 0 {
		return nil, errors.New("a signer of API keys needs a secret key")
	}
	for _, k := range keys {
		if len(k) < 32 {
			return nil, fmt.Errorf("a secret key of the signer of API keys has %d bytes, not 32 or more", len(k))
		}
	}
	return &Signer{keys: keys}, nil
}

var roleCodes = []control.Role{"", control.RoleViewer, control.RoleOperator, control.RoleAdmin}

// Mint returns a new text for the claims. Two of the same claims differ.
func (s *Signer) Mint(c Claims) (string, error) {
	role := slices.Index(roleCodes, c.Role)
	if role < 1 {
		return "", fmt.Errorf("mint an API key: %q is no role", c.Role)
	}
	var b bytes.Buffer
	b.WriteByte(tokenVersion)
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce)
	b.Write(nonce)
	for _, id := range []uuid.UUID{c.Organization, c.Account, c.Key} {
		b.Write(id[:])
	}
	b.WriteByte(byte(role))
	var expiry int64
	if !c.ExpiresAt.IsZero() {
		expiry = c.ExpiresAt.Unix()
	}
	b.Write(binary.BigEndian.AppendUint64(nil, uint64(expiry)))
	b.WriteString(strings.Join(c.Scopes, " "))
	b.Write(mac(s.keys[0], b.Bytes()))
	return TokenPrefix + base64.RawURLEncoding.EncodeToString(b.Bytes()), nil
}

// Verify returns what a text says if one of our keys signed it and it has not
// expired, else *control.UnauthenticatedError. It asks no database.
func (s *Signer) Verify(text string, now time.Time) (Claims, error) {
	bad := &control.UnauthenticatedError{Reason: "the key is not valid"}
	encoded, ok := strings.CutPrefix(text, TokenPrefix)
	if !ok || len(text) > maxToken {
		return Claims{}, bad
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	const fixed = 1 + nonceSize + 3*16 + 1 + 8
	if err != nil || len(raw) < fixed+macSize {
		return Claims{}, bad
	}
	body, sum := raw[:len(raw)-macSize], raw[len(raw)-macSize:]
	if !slices.ContainsFunc(s.keys, func(k []byte) bool { return hmac.Equal(mac(k, body), sum) }) {
		return Claims{}, bad
	}
	role := int(body[fixed-9])
	if body[0] != tokenVersion || role < 1 || role >= len(roleCodes) {
		return Claims{}, bad
	}
	ids := body[1+nonceSize:]
	c := Claims{
		Organization: uuid.UUID(ids[:16]), Account: uuid.UUID(ids[16:32]), Key: uuid.UUID(ids[32:48]),
		Role: roleCodes[role],
	}
	if n := int64(binary.BigEndian.Uint64(body[fixed-8 : fixed])); n != 0 {
		c.ExpiresAt = time.Unix(n, 0).UTC()
		if !now.Before(c.ExpiresAt) {
			return Claims{}, &control.UnauthenticatedError{Reason: "the key has expired", Expired: true}
		}
	}
	if scopes := string(body[fixed:]); scopes != "" {
		c.Scopes = strings.Split(scopes, " ")
	}
	return c, nil
}

func mac(key, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte("tranship api key\x00"))
	_, _ = h.Write(body)
	return h.Sum(nil)
}

// hashOf is what is stored of a key's text. The text holds 128 random bits and a
// MAC, so that a fast hash is enough.
func hashOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}
