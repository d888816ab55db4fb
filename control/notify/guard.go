package notify

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// Guard decides which addresses deliveries may reach.
type Guard struct {
	// Allow are networks that are reachable although they are not public, such as
	// one's own 10.0.0.0/8. None: public addresses alone.
	Allow []netip.Prefix `json:"allow,omitempty"`
	// AllowHTTP lets webhooks do without TLS.
	AllowHTTP bool `json:"allow_http,omitempty"`
}

// errRefused tells that an address is not for tenants to reach.
var errRefused = errors.New("the address is not a public one")

// special are networks that the tests of package netip don't know as special.
var special = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4",
	"64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10",
)

// embedding are networks whose addresses hold an IPv4 address from a byte on.
var embedding = []struct {
	in netip.Prefix
	at int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4
	{netip.MustParsePrefix("::/96"), 12},        // IPv4-compatible
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, p := range list {
		out[i] = netip.MustParsePrefix(p)
	}
	return out
}

// Check refuses an address that is neither public nor allowed.
func (g Guard) Check(ip netip.Addr) error {
	ip = ip.Unmap().WithZone("")
	for _, p := range g.Allow {
		if p.Contains(ip) {
			return nil
		}
	}
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return errRefused
	}
	for _, p := range special {
		if p.Contains(ip) {
			return errRefused
		}
	}
	for _, e := range embedding {
		if e.in.Contains(ip) {
			b := ip.As16()
			inner, _ := netip.AddrFromSlice(b[e.at : e.at+4])
			return g.Check(inner)
		}
	}
	return nil
}

// control is called with the resolved address just before a connection is made,
// so that a name which resolves to another address the second time gains nothing.
func (g Guard) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", errRefused, address)
	}
	return g.Check(at.Addr())
}

// Client is an HTTP client that keeps to the guard and follows no redirects.
func (g Guard) Client() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: g.control}
	return &http.Client{
		Transport: &http.Transport{
			// A proxy would resolve and dial in our place.
			Proxy:                  nil,
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			ResponseHeaderTimeout:  attemptTime,
			MaxIdleConns:           32,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        30 * time.Second,
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
