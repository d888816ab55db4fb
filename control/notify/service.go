package notify

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/secrets"
)

// Vault keeps the secrets that sign webhooks; its methods are those of
// [secrets.Store].
type Vault interface {
	PutSecret(ctx context.Context, a control.Actor, s secrets.Sealed, version int64) (secrets.Secret, error)
	DeleteSecret(ctx context.Context, a control.Actor, name string, version int64) error
}

// Service creates, changes and shows rules, and shows and replays deliveries.
type Service struct {
	Store Store
	Vault Vault
	// Keyring seals those secrets.
	Keyring secrets.Keyring
	Guard   Guard
	Clock   control.Clock
}

// Draft is what a user says of a rule; its fields mean what those of [Rule] do.
type Draft struct {
	Name                        string
	Pipeline                    uuid.UUID
	Resource                    string
	Events                      []string
	StaleAfter, NoProgressAfter time.Duration
	Channel                     Channel
	URL                         string
	URLSecret                   secrets.Ref
	To                          []string
	Paused                      bool
}

func (d Draft) over(r Rule) Rule {
	r.Name, r.Pipeline, r.Resource, r.Events = d.Name, d.Pipeline, d.Resource, d.Events
	r.StaleAfter, r.NoProgressAfter = d.StaleAfter, d.NoProgressAfter
	r.Channel, r.URL, r.URLSecret, r.To, r.Paused = d.Channel, d.URL, d.URLSecret, d.To, d.Paused
	return r
}

// Create stores a new rule. A webhook's signing secret is made with it; see
// [Service.Rotate] for how to get one that is shown.
func (s *Service) Create(ctx context.Context, a control.Actor, d Draft) (Rule, error) {
	if err := control.Authorize(a, control.WriteRules); err != nil {
		return Rule{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Rule{}, err
	}
	r := d.over(Rule{ID: id})
	if err := s.check(r); err != nil {
		return Rule{}, err
	}
	if r.Channel == Webhook {
		if _, err := s.newSecret(ctx, a, &r); err != nil {
			return Rule{}, err
		}
	}
	made, err := s.Store.CreateRule(ctx, a, r)
	if err != nil || made.ID != r.ID {
		// Nobody refers to it.
		s.forget(ctx, a, r.Secret)
	}
	return made, err
}

// Update replaces what a user says of a rule, if it is still at the version.
func (s *Service) Update(ctx context.Context, a control.Actor, id uuid.UUID, version int64, d Draft) (Rule, error) {
	if err := control.Authorize(a, control.WriteRules); err != nil {
		return Rule{}, err
	}
	old, err := s.Store.GetRule(ctx, a, id)
	if err != nil {
		return Rule{}, err
	}
	r := d.over(old)
	r.Version = version
	if err := s.check(r); err != nil {
		return Rule{}, err
	}
	if r.Channel != old.Channel {
		r.Secret, r.OldSecret, r.OldUntil, r.SecretPrefix = "", "", time.Time{}, ""
		if r.Channel == Webhook {
			if _, err := s.newSecret(ctx, a, &r); err != nil {
				return Rule{}, err
			}
		}
	}
	made, err := s.Store.UpdateRule(ctx, a, "rule.update", r)
	switch {
	case err != nil && r.Secret != old.Secret:
		s.forget(ctx, a, r.Secret)
	case err == nil && r.Secret != old.Secret:
		s.forget(ctx, a, old.Secret, old.OldSecret)
	}
	return made, err
}

// Rotate makes a new signing secret and returns it, which nothing does again. The
// one before signs too until the time that is returned, so that the receiver can
// change over without losing a message.
func (s *Service) Rotate(ctx context.Context, a control.Actor, id uuid.UUID) (secret string, oldUntil time.Time, err error) {
	if err := control.Authorize(a, control.WriteRules); err != nil {
		return "", time.Time{}, err
	}
	old, err := s.Store.GetRule(ctx, a, id)
	if err != nil {
		return "", time.Time{}, err
	}
	if old.Channel != Webhook {
		return "", time.Time{}, &control.ConflictError{
			Code: "not_a_webhook", State: string(old.Channel), Message: fmt.Sprintf("rule %q sends by %s, which is not signed", old.Name, old.Channel),
		}
	}
	r := old
	secret, err = s.newSecret(ctx, a, &r)
	if err != nil {
		return "", time.Time{}, err
	}
	r.OldSecret, r.OldUntil = old.Secret, s.Clock.Now().UTC().Add(SecretOverlap)
	if _, err := s.Store.UpdateRule(ctx, a, "rule.rotate_secret", r); err != nil {
		s.forget(ctx, a, r.Secret)
		return "", time.Time{}, err
	}
	s.forget(ctx, a, old.OldSecret)
	return secret, r.OldUntil, nil
}

// Delete removes a rule and cancels what it has not sent yet.
func (s *Service) Delete(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error {
	if err := control.Authorize(a, control.WriteRules); err != nil {
		return err
	}
	old, err := s.Store.DeleteRule(ctx, a, id, version)
	if err == nil {
		s.forget(ctx, a, old.Secret, old.OldSecret)
	}
	return err
}

// Get returns a rule.
func (s *Service) Get(ctx context.Context, a control.Actor, id uuid.UUID) (Rule, error) {
	if err := control.Authorize(a, control.ReadNotifications); err != nil {
		return Rule{}, err
	}
	return s.Store.GetRule(ctx, a, id)
}

// PipelineID finds the pipeline of a reference, by its name or id; uuid.Nil for the
// empty one.
func (s *Service) PipelineID(ctx context.Context, a control.Actor, ref string) (uuid.UUID, error) {
	if err := control.Authorize(a, control.ReadNotifications); err != nil || ref == "" {
		return uuid.Nil, err
	}
	return s.Store.PipelineID(ctx, a, ref)
}

// List lists rules; pipeline uuid.Nil: all, otherwise those that name it.
func (s *Service) List(ctx context.Context, a control.Actor, pipeline uuid.UUID, p control.Page) (control.List[Rule], error) {
	if err := control.Authorize(a, control.ReadNotifications); err != nil {
		return control.List[Rule]{}, err
	}
	return s.Store.ListRules(ctx, a, pipeline, p)
}

// Deliveries lists deliveries, the newest first.
func (s *Service) Deliveries(ctx context.Context, a control.Actor, f Filter, p control.Page) (control.List[Delivery], error) {
	if err := control.Authorize(a, control.ReadNotifications); err != nil {
		return control.List[Delivery]{}, err
	}
	return s.Store.ListDeliveries(ctx, a, f, p)
}

// Delivery returns a delivery with its attempts.
func (s *Service) Delivery(ctx context.Context, a control.Actor, id uuid.UUID) (Delivery, error) {
	if err := control.Authorize(a, control.ReadNotifications); err != nil {
		return Delivery{}, err
	}
	return s.Store.GetDelivery(ctx, a, id)
}

// Replay sends a delivery again that was sent or given up, under the same id.
func (s *Service) Replay(ctx context.Context, a control.Actor, id uuid.UUID) (Delivery, error) {
	if err := control.Authorize(a, control.ReplayDeliveries); err != nil {
		return Delivery{}, err
	}
	return s.Store.ReplayDelivery(ctx, a, id, s.Clock.Now())
}

func (s *Service) check(r Rule) error { return r.check(s.Guard.AllowHTTP) }

// newSecret makes a signing secret and puts its reference into the rule.
func (s *Service) newSecret(ctx context.Context, a control.Actor, r *Rule) (string, error) {
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make a signing secret: %w", err)
	}
	secret := "whsec_" + base64.StdEncoding.EncodeToString(raw)
	name, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make a signing secret: %w", err)
	}
	sealed, err := secrets.Seal(ctx, s.Keyring, a.Organization, "notification-rule."+r.ID.String()+"."+name.String(), secret)
	if err != nil {
		return "", fmt.Errorf("make a signing secret: %w", err)
	}
	if _, err := s.Vault.PutSecret(ctx, a, sealed, 0); err != nil {
		return "", fmt.Errorf("store a signing secret: %w", err)
	}
	r.Secret, r.SecretPrefix = sealed.Ref(), secret[:len("whsec_")+4]
	return secret, nil
}

// forget deletes secrets to which nothing refers any more. One that stays behind
// does no harm: it is encrypted, and signs nothing.
func (s *Service) forget(ctx context.Context, a control.Actor, refs ...secrets.Ref) {
	for _, ref := range refs {
		if ref.Provider() == secrets.ProviderLocal {
			_ = s.Vault.DeleteSecret(context.WithoutCancel(ctx), a, ref.Name(), secrets.AnyVersion)
		}
	}
}
