package pgconf

import (
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"
)

// maxAppName is NAMEDATALEN − 1: the server cuts longer names silently.
const maxAppName = 63

// AppNames is what the application_name of every session of ours begins with.
const AppNames = "tranship/"

// Role is what a session is for, such as "plan", or the split and claim that it
// reads or writes under.
type Role struct {
	// Name is "plan", "holder", …, or the split's id.
	Name string
	// Claim is the split's claim number; 0 for a session without one.
	Claim int64
	// Replication asks for a session that can stream changes.
	Replication bool
}

// roleLen leaves room for "tranship/", 8 digits of the run, and a claim of up to
// ten digits, so that a role is shortened the same way under every claim.
const roleLen = maxAppName - len(AppNames) - 8 - 1 - 11

// AppName returns the application_name of a session: tranship/<run>/<role>[/<claim>],
// at most 63 bytes. Runs are shortened to their last 8 hex digits (the random
// end of a UUIDv7) and long roles to a prefix and a hash, so that different
// sessions keep different names and a new claim finds the older ones (P5).
func AppName(runID string, r Role) string {
	if r.Claim == 0 {
		return strings.TrimSuffix(AppNamePrefix(runID, r.Name), "/")
	}
	return fmt.Sprintf("%s%d", AppNamePrefix(runID, r.Name), r.Claim)
}

// AppNamePrefix is what the names of a split's sessions begin with, whatever
// their claim; the claim's digits follow.
func AppNamePrefix(runID, split string) string {
	return AppNames + shortRun(runID) + "/" + shorten(split, roleLen) + "/"
}

func shortRun(id string) string {
	hex := strings.ReplaceAll(id, "-", "")
	if hex == "" {
		return "-"
	}
	return ascii(hex[max(0, len(hex)-8):])
}

// shorten fits a name into n bytes of printable ASCII; a changed name ends in a
// hash of the whole.
func shorten(name string, n int) string {
	clean := ascii(name)
	if clean == name && len(name) <= n {
		return name
	}
	hash := fmt.Sprintf("~%08x", uint32(xxh3.HashString(name)))
	return clean[:min(len(clean), max(0, n-len(hash)))] + hash
}

// ascii replaces what the server would not show as it is.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, s)
}
