package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Bootstrap makes the first organization, named by key and name, with an admin key
// whose text it gives to keep, such as [WriteKeyFile]. If there is an organization
// it does nothing, and made is false. The key is kept before anything is committed,
// so that no organization is left without a way in.
func (s *Service) Bootstrap(ctx context.Context, key, name string, keep func(text string) error) (made bool, err error) {
	organization, err := uuid.NewV7()
	if err != nil {
		return false, fmt.Errorf("make the organization's id: %w", err)
	}
	account := Account{ID: uuid.Must(uuid.NewV7()), Name: "bootstrap", Description: "made with the organization", Role: control.RoleAdmin}
	text, k, err := s.mint(organization, Key{Account: account.ID, Name: "bootstrap", Role: control.RoleAdmin})
	if err != nil {
		return false, err
	}
	return s.store.Bootstrap(ctx, Organization{ID: organization, Key: key, Name: name}, account, k, func() error { return keep(text) })
}

// Emergency makes an admin key of an organization without asking for one: the way
// in for whoever has the database and the master key. The organization is named by
// its key; empty: the only one there is.
func (s *Service) Emergency(ctx context.Context, organization string, lifetime time.Duration) (Key, string, error) {
	o, err := s.pick(ctx, organization)
	if err != nil {
		return Key{}, "", err
	}
	a := control.System(o.ID)
	a.Name = "break-glass"
	account, err := s.store.CreateAccount(ctx, a, Account{Name: "break-glass-" + s.now().UTC().Format("20060102-150405"), Description: "made with the database's URL", Role: control.RoleAdmin})
	if err != nil {
		return Key{}, "", err
	}
	k := Key{Account: account.ID, Name: "break-glass", Role: control.RoleAdmin}
	if lifetime > 0 {
		k.ExpiresAt = s.now().Add(lifetime)
	}
	return s.CreateKey(ctx, a, k)
}

func (s *Service) pick(ctx context.Context, key string) (Organization, error) {
	if key != "" {
		return s.store.FindOrganization(ctx, key)
	}
	all, err := s.store.ListOrganizations(ctx, 2)
	switch {
	case err != nil:
		return Organization{}, err
	case len(all) == 0:
		return Organization{}, &control.NotFoundError{Kind: "organization", Ref: ""}
	case len(all) > 1:
		return Organization{}, &control.ConflictError{Code: "ambiguous", Message: "there are several organizations", Hint: "name one by its key"}
	}
	return all[0], nil
}

// WriteKeyFile writes a key's text to a file that only its owner can read. A file
// that holds anything but a key is left alone.
func WriteKeyFile(file, text string) (err error) {
	if old, err := os.ReadFile(file); err == nil && len(strings.TrimSpace(string(old))) > 0 && !strings.HasPrefix(string(old), TokenPrefix) {
		return &control.ConflictError{Code: "file_exists", Message: fmt.Sprintf("the file %s holds something else than a key", file), Hint: "name another file"}
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".key-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write key file: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.WriteString(text + "\n")
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("write key file: %w", err)
	}
	return nil
}
