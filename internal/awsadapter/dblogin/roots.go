package dblogin

import (
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
)

// rds are the root certificates of RDS and Aurora in the public regions, which no
// system trusts by itself.
//
//go:embed rds.pem
var rds []byte

// RootCAs are the system's root certificates and those of RDS.
func RootCAs() (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's root certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(rds) {
		return nil, errors.New("the root certificates of RDS cannot be read")
	}
	return pool, nil
}
