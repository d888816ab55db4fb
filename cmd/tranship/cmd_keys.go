package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/api/client"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/store"
)

func (a *app) keysCommand() *cobra.Command {
	var f listFlags
	c := &cobra.Command{
		Use: "keys", Short: "List API keys of a server; create, rotate, revoke them", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listKeys(cmd.Context(), f) },
	}
	f.add(c)
	list := &cobra.Command{Use: "list", Short: "List API keys", Args: noArgs, RunE: c.RunE}
	list.Flags().AddFlagSet(c.Flags())
	c.AddCommand(list, a.keyCreate(), a.keyRotate(), a.keyRevoke(), a.masterRotate())
	return c
}

func (a *app) listKeys(ctx context.Context, f listFlags) error {
	c, err := a.remote()
	if err != nil {
		return err
	}
	limit, after := f.page()
	list, body, err := fetch[client.KeyList](c.ListKeys(ctx, &client.ListKeysParams{Limit: limit, After: after}))
	if err != nil {
		return err
	}
	if f.json {
		return a.writeAnswer(body)
	}
	t := newTable("KEY", "NAME", "PREFIX", "ROLE", "STATE", "EXPIRES")
	for _, k := range list.Items {
		t.row(k.Id.String(), k.Name, k.Prefix, string(k.Role), keyState(k, time.Now()), whenAt(k.ExpiresAt))
	}
	if err := t.print(a.stdout, ""); err != nil {
		return err
	}
	return a.more(list.Next)
}

func keyState(k client.Key, now time.Time) string {
	switch {
	case !k.RevokedAt.IsZero():
		return "revoked"
	case !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(now):
		return "expired"
	case k.RotatedTo != uuid.Nil:
		return "rotated"
	}
	return "active"
}

// keyFlags are the flags of keys create.
type keyFlags struct {
	account, name, role, out string
	scopes                   []string
	expires                  time.Duration
	database, master, org    string
}

func (a *app) keyCreate() *cobra.Command {
	var f keyFlags
	c := &cobra.Command{
		Use: "create", Short: "Create an API key", Args: noArgs,
		Long: `Create an API key of a service account, which is made if the server has none of
the name. The key is printed once, or written to a file of mode 0600 with --out.

With --database the key is an admin's, made in the database itself without asking
a server: for whoever has lost every key. It needs the installation's master key.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.database != "" {
				return a.emergencyKey(cmd.Context(), f)
			}
			return a.createKey(cmd.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.account, "account", "", "name of the service account")
	fl.StringVar(&f.name, "name", "default", "name of the key")
	fl.StringVar(&f.role, "role", "viewer", "viewer, operator or admin; that of an account that is made, too")
	fl.StringSliceVar(&f.scopes, "scopes", nil, "only these permissions of the role, such as runs:read")
	fl.DurationVar(&f.expires, "expires", 0, "lifetime, such as 2160h; 0: for ever")
	fl.StringVar(&f.out, "out", "", "write the key to this file instead")
	fl.StringVar(&f.database, "database", "", "URL of the control plane's database: the emergency way")
	fl.StringVar(&f.master, "master-key-file", ".tranship/master.key", "with --database: the master key")
	fl.StringVar(&f.org, "organization", "", "with --database: key of the organization, if there are several")
	return c
}

func (a *app) createKey(ctx context.Context, f keyFlags) error {
	if f.account == "" {
		return usageError("--account NAME", "whose key is it? a service account is needed")
	}
	c, err := a.remote()
	if err != nil {
		return err
	}
	account, err := accountID(ctx, c, f.account, client.Role(f.role))
	if err != nil {
		return err
	}
	input := client.KeyInput{ServiceAccount: account, Name: f.name, Role: client.Role(f.role), Scopes: f.scopes}
	if f.expires > 0 {
		input.ExpiresAt = time.Now().Add(f.expires).UTC()
	}
	k, _, err := fetch[client.KeyCreated](c.CreateKey(ctx, &client.CreateKeyParams{IdempotencyKey: idempotency()}, input))
	if err != nil {
		return err
	}
	return a.handOver(k.Item.Id, k.Key, f.out)
}

// accountID finds a service account by its name, or makes it.
func accountID(ctx context.Context, c *client.Client, name string, role client.Role) (uuid.UUID, error) {
	limit := 500
	params := &client.ListServiceAccountsParams{Limit: &limit}
	for {
		list, _, err := fetch[client.ServiceAccountList](c.ListServiceAccounts(ctx, params))
		if err != nil {
			return uuid.Nil, err
		}
		for _, x := range list.Items {
			if x.Name == name {
				return x.Id, nil
			}
		}
		if list.Next == nil {
			break
		}
		params.After = list.Next
	}
	made, _, err := fetch[client.ServiceAccount](c.CreateServiceAccount(ctx, &client.CreateServiceAccountParams{IdempotencyKey: idempotency()}, client.ServiceAccountInput{Name: name, Role: role}))
	if err != nil {
		return uuid.Nil, err
	}
	return made.Id, nil
}

// handOver gives a new key to the user: the only time that it is shown.
func (a *app) handOver(id uuid.UUID, text, file string) error {
	if file != "" {
		if err := access.WriteKeyFile(file, text); err != nil {
			return &exitError{exitFailed, fmt.Errorf("%w; revoke the key %s", err, id)}
		}
		_, err := fmt.Fprintf(a.stdout, "key %s is in %s\n", id, file)
		return err
	}
	_, err := fmt.Fprintln(a.stdout, text)
	return err
}

// emergencyKey makes an admin key in the database.
func (a *app) emergencyKey(ctx context.Context, f keyFlags) error {
	a.redact.Add(f.database)
	ring, err := secrets.ReadKeyFile(f.master)
	if err != nil {
		return usageError("name the installation's with --master-key-file", "%v", err)
	}
	keys, err := ring.Derive(access.Purpose)
	if err != nil {
		return err
	}
	signer, err := access.NewSigner(keys)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, store.Config{URL: f.database, MaxConns: 2})
	if err != nil {
		return &exitError{exitFailed, err}
	}
	defer db.Close()
	service, err := access.New(access.Config{Store: db.Access(), Signer: signer})
	if err != nil {
		return err
	}
	k, text, err := service.Emergency(ctx, f.org, f.expires)
	if err != nil {
		var missing *control.NotFoundError
		if errors.As(err, &missing) {
			return usageError("tranship serve --bootstrap-key-file makes the first", "the database has no such organization")
		}
		return &exitError{exitFailed, err}
	}
	return a.handOver(k.ID, text, f.out)
}

func (a *app) keyRotate() *cobra.Command {
	var out string
	overlap := 24 * time.Hour
	c := &cobra.Command{
		Use: "rotate KEY", Short: "Make a key in the place of another, by its id", Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := keyID(args[0])
			if err != nil {
				return err
			}
			c, err := a.remote()
			if err != nil {
				return err
			}
			seconds := int(overlap.Seconds())
			k, _, err := fetch[client.KeyCreated](c.RotateKey(cmd.Context(), id, &client.RotateKeyParams{IdempotencyKey: idempotency()}, client.KeyRotation{OverlapSeconds: &seconds}))
			if err != nil {
				return err
			}
			return a.handOver(k.Item.Id, k.Key, out)
		},
	}
	c.Flags().DurationVar(&overlap, "overlap", overlap, "how long the old key goes on")
	c.Flags().StringVar(&out, "out", "", "write the key to this file instead")
	return c
}

func (a *app) keyRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke KEY", Short: "End a key at once, by its id", Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := keyID(args[0])
			if err != nil {
				return err
			}
			c, err := a.remote()
			if err != nil {
				return err
			}
			_, err = answer(c.RevokeKey(cmd.Context(), id, &client.RevokeKeyParams{IdempotencyKey: idempotency()}))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "key %s is revoked\n", id)
			return err
		},
	}
}

func keyID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, usageError("tranship keys lists them", "%q is not the id of a key", text)
	}
	return id, nil
}
