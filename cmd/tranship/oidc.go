package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
)

// issuerEntry is an issuer in the file of --oidc-file; its fields are those of
// [access.OIDC].
type issuerEntry struct {
	Issuer            string                  `json:"issuer"`
	Audience          string                  `json:"audience"`
	Organization      string                  `json:"organization,omitempty"`
	OrganizationClaim string                  `json:"organization_claim,omitempty"`
	RoleClaim         string                  `json:"role_claim,omitempty"`
	Roles             map[string]control.Role `json:"roles,omitempty"`
	SkewSeconds       float64                 `json:"skew_seconds,omitempty"`
}

// readIssuers reads the OIDC issuers of a file: a list of objects.
func readIssuers(path string) ([]access.OIDC, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError("name a file with --oidc-file that this process may read", "read the OIDC issuers: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var entries []issuerEntry
	err = d.Decode(&entries)
	if err == nil && d.Decode(new(any)) != io.EOF {
		err = usageError("", "something follows the list")
	}
	if err != nil {
		return nil, usageError(`write a list such as [{"issuer": "https://…", "audience": "tranship", "organization": "main"}]`, "read the OIDC issuers in %s: %w", path, err)
	}
	out := make([]access.OIDC, len(entries))
	seen := map[string]bool{}
	for i, e := range entries {
		if seen[e.Issuer] {
			return nil, usageError("give each issuer once", "read the OIDC issuers in %s: %s is there twice", path, e.Issuer)
		}
		seen[e.Issuer] = true
		out[i] = access.OIDC{
			Issuer: e.Issuer, Audience: e.Audience, Organization: e.Organization, OrganizationClaim: e.OrganizationClaim,
			RoleClaim: e.RoleClaim, Roles: e.Roles, Skew: time.Duration(e.SkewSeconds * float64(time.Second)),
		}
	}
	return out, nil
}
