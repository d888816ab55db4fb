package access

import (
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Organization is a tenant.
type Organization struct {
	ID        uuid.UUID `json:"id"`
	Key       string    `json:"key"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

// Member is a person, known by an OIDC issuer's subject, or by an e-mail address
// until the first sign-in with it.
type Member struct {
	ID         uuid.UUID    `json:"id"`
	Name       string       `json:"name"`
	Email      string       `json:"email,omitempty"`
	Issuer     string       `json:"issuer,omitempty"`
	Subject    string       `json:"subject,omitempty"`
	Role       control.Role `json:"role"`
	Version    int64        `json:"version"`
	CreatedAt  time.Time    `json:"created_at"`
	UpdatedAt  time.Time    `json:"updated_at"`
	LastSeenAt time.Time    `json:"last_seen_at,omitzero"`
}

// Account is a service account: a program.
type Account struct {
	ID          uuid.UUID    `json:"id"`
	Name        string       `json:"name"`
	Description string       `json:"description,omitempty"`
	Role        control.Role `json:"role"`
	Version     int64        `json:"version"`
	CreatedAt   time.Time    `json:"created_at"`
	UpdatedAt   time.Time    `json:"updated_at"`
}

// Key is an API key without its text.
type Key struct {
	ID      uuid.UUID `json:"id"`
	Account uuid.UUID `json:"service_account"`
	Name    string    `json:"name"`
	// Prefix is the beginning of the text, to tell keys apart.
	Prefix string       `json:"prefix"`
	Role   control.Role `json:"role"`
	Scopes []string     `json:"scopes"`
	// Hash is stored in the place of the text.
	Hash      []byte    `json:"-"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	RotatedTo uuid.UUID `json:"rotated_to,omitzero"`
}

// AuditItem is one line of the audit log.
type AuditItem struct {
	ID, ActorID, ActorKey, Object uuid.UUID
	At                            time.Time
	ActorKind                     control.ActorKind
	ActorName, RequestID          string
	Action, Kind                  string
	Before, After                 []byte
}

// AuditFilter chooses lines of the audit log; zero fields choose all.
type AuditFilter struct {
	Actor, Object uuid.UUID
	Action, Kind  string
	From, To      time.Time
}
