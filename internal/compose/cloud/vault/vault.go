// Package vault gives a function the secrets of connections.
package vault

import (
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/internal/awsadapter/kmskeys"
	"github.com/tranship-io/tranship/internal/awsadapter/secretstore"
	"github.com/tranship-io/tranship/internal/compose/cloud"
)

// Vault is what seals and resolves secrets.
type Vault struct {
	Keyring secrets.Keyring
	Secrets secrets.Secrets
}

// Open reads the environment: secrets lie encrypted in the database, under a key
// of KMS, or in Secrets Manager. No variable of a function's environment is one.
func Open(f *cloud.Function, store secrets.Store) *Vault {
	keyring := kmskeys.New(f.AWS, f.Env.Need("TRANSHIP_KMS_KEY"))
	return &Vault{Keyring: keyring, Secrets: secrets.Secrets{
		secrets.ProviderLocal: &secrets.Local{Store: store, Keyring: keyring},
		secretstore.Name:      secretstore.New(f.AWS, f.Installation+"/connections"),
	}}
}
