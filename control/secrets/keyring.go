package secrets

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

var _ Keyring = (*MasterKeys)(nil)

// keySize is that of AES-256.
const keySize = 32

// MasterKeys is a [Keyring] that holds an installation's master keys: the first one wraps, all unwrap.
// Its first one stays what it is; a key that is missing is looked for in the file
// again, for another process may have rotated it. It may be used concurrently.
type MasterKeys struct {
	ids  []string
	path string

	mu   sync.RWMutex
	keys map[string][]byte
}

// key finds a master key by its id.
func (k *MasterKeys) key(id string) ([]byte, bool) {
	k.mu.RLock()
	key, ok := k.keys[id]
	k.mu.RUnlock()
	if ok || k.path == "" {
		return key, ok
	}
	now, err := ReadKeyFile(k.path)
	if err != nil {
		return nil, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for other, key := range now.keys {
		k.keys[other] = key
	}
	key, ok = k.keys[id]
	return key, ok
}

// NewMasterKeys makes a keyring of raw keys of 32 bytes, the current one first.
func NewMasterKeys(keys ...[]byte) (*MasterKeys, error) {
	if len(keys) == 0 {
		return nil, errors.New("a keyring needs at least one key")
	}
	k := &MasterKeys{keys: map[string][]byte{}}
	for _, key := range keys {
		if len(key) != keySize {
			return nil, fmt.Errorf("a master key has %d bytes, not %d", keySize, len(key))
		}
		id := keyID(key)
		if _, twice := k.keys[id]; !twice {
			k.ids = append(k.ids, id)
			k.keys[id] = bytes.Clone(key)
		}
	}
	return k, nil
}

// keyID names a key without telling anything of it.
func keyID(key []byte) string {
	sum := sha256.Sum256(append([]byte("tranship master key id\x00"), key...))
	return hex.EncodeToString(sum[:8])
}

// Current is the id of the key that wraps.
func (k *MasterKeys) Current() string { return k.ids[0] }

// Derive returns a key of 32 bytes for another purpose, from the current master
// key and from the older ones, in their order: sign with the first, accept all.
func (k *MasterKeys) Derive(purpose string) ([][]byte, error) {
	out := make([][]byte, len(k.ids))
	for i, id := range k.ids {
		master, _ := k.key(id)
		key, err := hkdf.Key(sha256.New, master, nil, "tranship "+purpose, keySize)
		if err != nil {
			return nil, fmt.Errorf("derive key for %s: %w", purpose, err)
		}
		out[i] = key
	}
	return out, nil
}

// Wrap implements [Keyring].
func (k *MasterKeys) Wrap(_ context.Context, s Sealed, data []byte) ([]byte, error) {
	master, ok := k.key(s.Key)
	if !ok {
		return nil, fmt.Errorf("the master key %s is not in the master key file", s.Key)
	}
	return encrypt(master, data, s.bind("key"))
}

// Unwrap implements [Keyring].
func (k *MasterKeys) Unwrap(_ context.Context, s Sealed) ([]byte, error) {
	master, ok := k.key(s.Key)
	if !ok {
		return nil, fmt.Errorf("the master key %s that wraps it is not in the master key file", s.Key)
	}
	data, err := decrypt(master, s.DataKey, s.bind("key"))
	if err != nil {
		return nil, ErrWrapping
	}
	return data, nil
}

// ReadKeyFile reads a file of master keys: one a line in base64, the current one
// first; empty lines and lines that begin with # are skipped. A file that others
// than its owner may read is refused.
func ReadKeyFile(path string) (*MasterKeys, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read master key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		return nil, fmt.Errorf("the master key file %s may be read by others: chmod 600 %s", path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read master key: %w", err)
	}
	var keys [][]byte
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != keySize {
			return nil, fmt.Errorf("line %d of the master key file %s is no key: want %d bytes in base64", i+1, path, keySize)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("the master key file %s holds no key", path)
	}
	k, err := NewMasterKeys(keys...)
	if err == nil {
		k.path = path
	}
	return k, err
}

// OpenKeyFile reads the file of master keys, and makes it with a new key (mode
// 0600) if it is not there. Of processes that do so at once all get the same key.
func OpenKeyFile(path string) (*MasterKeys, error) {
	k, err := ReadKeyFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	line, err := newKeyLine()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make master key: %w", err)
	}
	// The name appears with its content whole, or is somebody else's already.
	if err := writeWhole(path, line, os.Link); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make master key: %w", err)
	}
	return ReadKeyFile(path)
}

// RotateKeyFile puts a new key before those of the file. A process that begins
// then wraps with it; those that run find it when they need it. Older keys may be
// removed from the file once every process has begun anew and [Local.Rewrap] has
// wrapped all secrets.
func RotateKeyFile(path string) (*MasterKeys, error) {
	if _, err := ReadKeyFile(path); err != nil {
		return nil, err
	}
	old, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("rotate master key: %w", err)
	}
	line, err := newKeyLine()
	if err != nil {
		return nil, err
	}
	if err := writeWhole(path, append(line, old...), os.Rename); err != nil {
		return nil, fmt.Errorf("rotate master key: %w", err)
	}
	return ReadKeyFile(path)
}

func newKeyLine() ([]byte, error) {
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make master key: %w", err)
	}
	return []byte(base64.StdEncoding.EncodeToString(key) + "\n"), nil
}

// writeWhole writes a file of mode 0600 beside path and puts it there.
func writeWhole(path string, text []byte, put func(from, to string) error) error {
	// CreateTemp makes files of mode 0600.
	tmp, err := os.CreateTemp(filepath.Dir(path), ".master-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(text)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = put(tmp.Name(), path)
	}
	return err
}
