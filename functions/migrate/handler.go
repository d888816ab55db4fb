package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/internal/awsadapter/parameter"
	"github.com/tranship-io/tranship/store"
)

// handler brings an installation's database up to date, and makes what a new one
// needs. It may be repeated, and may die anywhere.
type handler struct {
	db                *store.DB
	parameters        *parameter.Store
	signing, firstKey string
	organization      string
	log               *slog.Logger
}

// answer is what a deployment is told.
type answer struct {
	// Version is the database's migration now, From the one before; 0: none.
	Version int64 `json:"version"`
	From    int64 `json:"from"`
	// Bootstrapped tells that the first organization was made, with a key.
	Bootstrapped bool `json:"bootstrapped"`
}

func (h *handler) handle(ctx context.Context, _ struct{}) (answer, error) {
	var out answer
	err := h.reachable(ctx, func() (err error) {
		out.From, err = h.db.Version(ctx)
		return err
	})
	if err != nil {
		return out, err
	}
	if err := h.reachable(ctx, func() error { return h.db.Migrate(ctx) }); err != nil {
		return out, err
	}
	if out.Version, err = h.db.Version(ctx); err != nil {
		return out, err
	}
	signer, err := h.signer(ctx)
	if err != nil {
		return out, err
	}
	service, err := access.New(access.Config{Store: h.db.Access(), Signer: signer})
	if err != nil {
		return out, err
	}
	out.Bootstrapped, err = service.Bootstrap(ctx, h.organization, h.organization, func(text string) error {
		return h.parameters.Put(ctx, h.firstKey, text, "the first admin key of Tranship: make others with it, then revoke it")
	})
	h.log.InfoContext(ctx, "migrated", "version", out.Version, "from", out.From, "bootstrapped", out.Bootstrapped)
	return out, err
}

// signer reads the key that signs API keys, which it makes if there is none.
func (h *handler) signer(ctx context.Context) (*access.Signer, error) {
	keys, err := h.parameters.Keys(ctx, h.signing)
	if errors.Is(err, parameter.ErrMissing) {
		key := make([]byte, 32)
		if _, err := rand.Read(key); err != nil {
			return nil, fmt.Errorf("make the key that signs API keys: %w", err)
		}
		// If another one was faster, its key holds.
		if _, err := h.parameters.Make(ctx, h.signing, base64.StdEncoding.EncodeToString(key), "signs the API keys of Tranship"); err != nil {
			return nil, err
		}
		keys, err = h.parameters.Keys(ctx, h.signing)
	}
	if err != nil {
		return nil, err
	}
	return access.NewSigner(keys)
}

// reachable repeats what fails while the database cannot be reached: a new one may
// take minutes to come up. The invocation's end bounds it.
func (h *handler) reachable(ctx context.Context, do func() error) error {
	for {
		err := do()
		var away *control.UnavailableError
		if !errors.As(err, &away) {
			return err
		}
		h.log.WarnContext(ctx, "the database cannot be reached yet", "error", err)
		if (control.SystemClock{}).Sleep(ctx, time.Now().Add(away.RetryAfter)) != nil {
			return err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < 10*time.Second {
			return err
		}
	}
}
