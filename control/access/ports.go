package access

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Each method that changes something does so in one transaction with its audit
// entry, and with the request's idempotency record where it makes something:
// then it returns what the first request made, and first is false. Ids that are
// not the organization's are *control.NotFoundError; a version other than the
// given one (0: any) is *control.StaleVersionError.

// Members keeps members.
type Members interface {
	ListMembers(ctx context.Context, organization uuid.UUID, p control.Page) (control.List[Member], error)
	GetMember(ctx context.Context, organization, id uuid.UUID) (Member, error)
	// CreateMember is refused with *control.ConflictError if the identity or the
	// address is a member already.
	CreateMember(ctx context.Context, a control.Actor, m Member) (Member, error)
	// UpdateMember sets name and role. The last admin keeps the role:
	// *control.ConflictError.
	UpdateMember(ctx context.Context, a control.Actor, m Member, version int64) (Member, error)
	DeleteMember(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error
	// SignIn returns the member of an identity. A member whose address matches and
	// who has no identity yet gets it; with a role (from the token) a member is
	// made, or takes that role. *control.NotFoundError: nobody.
	SignIn(ctx context.Context, organization uuid.UUID, who Identity) (Member, error)
}

// Accounts keeps service accounts.
type Accounts interface {
	ListAccounts(ctx context.Context, organization uuid.UUID, p control.Page) (control.List[Account], error)
	GetAccount(ctx context.Context, organization, id uuid.UUID) (Account, error)
	CreateAccount(ctx context.Context, a control.Actor, s Account) (Account, error)
	UpdateAccount(ctx context.Context, a control.Actor, s Account, version int64) (Account, error)
	// DeleteAccount also revokes its keys.
	DeleteAccount(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error
}

// Keys keeps API keys.
type Keys interface {
	ListKeys(ctx context.Context, organization, account uuid.UUID, p control.Page) (control.List[Key], error)
	GetKey(ctx context.Context, organization, id uuid.UUID) (Key, error)
	// CreateKey refuses a role above the account's, and a repetition of a request,
	// whose key's text is not known any more: *control.ConflictError.
	CreateKey(ctx context.Context, a control.Actor, k Key) (Key, error)
	// RotateKey makes the key and lets the old one end after the overlap.
	RotateKey(ctx context.Context, a control.Actor, old uuid.UUID, k Key, overlap time.Duration) (Key, error)
	// RevokeKey may be repeated.
	RevokeKey(ctx context.Context, a control.Actor, id uuid.UUID) (Key, error)
}

// Organizations keeps organizations, and what is known of all of them.
type Organizations interface {
	GetOrganization(ctx context.Context, id uuid.UUID) (Organization, error)
	// FindOrganization finds one by its key; *control.NotFoundError.
	FindOrganization(ctx context.Context, key string) (Organization, error)
	// ListOrganizations returns all, the oldest first; for the operator.
	ListOrganizations(ctx context.Context, limit int) ([]Organization, error)
	// Bootstrap makes the first organization, with an account and a key for it. If
	// there is one already it does nothing and made is false. ready is called while
	// no other process can bootstrap, before anything is committed.
	Bootstrap(ctx context.Context, o Organization, s Account, k Key, ready func() error) (made bool, err error)
	// Confirm checks the context's caller.
	Confirm(ctx context.Context, organization uuid.UUID) error
	ListAudit(ctx context.Context, organization uuid.UUID, f AuditFilter, p control.Page) (control.List[AuditItem], error)
}

// Store is all that the service keeps.
type Store interface {
	Members
	Accounts
	Keys
	Organizations
}
