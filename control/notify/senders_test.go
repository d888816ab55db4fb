package notify

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/secrets"
)

const (
	oldSecret = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk"
	newSecret = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3"
)

// vault resolves references to what a test says.
type vault map[secrets.Ref]string

func (v vault) Resolve(_ context.Context, _ uuid.UUID, ref secrets.Ref) (string, error) {
	s, ok := v[ref]
	if !ok {
		return "", &secrets.UnresolvedError{Ref: ref, Reason: "there is none"}
	}
	return s, nil
}

var loopback = Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, AllowHTTP: true}

func message(rule Rule) Message {
	return Message{
		ID: uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057"), Organization: uuid.Max, Rule: rule, Event: RunFailed, At: time.Now(),
		Payload: json.RawMessage(`{"type":"run.failed","timestamp":"2026-11-30T10:00:00Z","data":{"message":"run 7 of pipeline \"shop\" failed: <!channel> & co","pipeline":"shop","run_id":"r7","resources":["orders","items"]}}`),
	}
}

// A receiver that checks with either secret accepts what is sent while both are valid.
func TestWebhookIsSignedWithBothSecrets(t *testing.T) {
	var got *http.Request
	var body []byte
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	w := &WebhookSender{Client: loopback.Client(), Secrets: vault{"local:new": newSecret, "local:old": oldSecret}}
	rule := Rule{URL: receiver.URL + "/hook", Secret: "local:new", OldSecret: "local:old", OldUntil: time.Now().Add(time.Hour)}
	m := message(rule)
	require.Equal(t, Result{Status: 204}, w.Send(t.Context(), m))
	require.Equal(t, m.ID.String(), got.Header.Get("webhook-id"))
	require.Equal(t, "application/json", got.Header.Get("Content-Type"))
	require.JSONEq(t, string(m.Payload), string(body))
	for _, secret := range []string{newSecret, oldSecret} {
		hook, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		require.NoError(t, hook.Verify(body, got.Header))
		require.Error(t, hook.Verify(append(body, ' '), got.Header))
	}
	// Once the old one's time is over it signs no more.
	m.Rule.OldUntil = time.Now().Add(-time.Second)
	w.Send(t.Context(), m)
	hook, err := standardwebhooks.NewWebhook(oldSecret)
	require.NoError(t, err)
	require.Error(t, hook.Verify(body, got.Header))
}

func TestAnswersOfReceivers(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header string
		want   Result
	}{
		"taken":        {202, "", Result{Status: 202}},
		"broken":       {500, "", Result{Status: 500, Error: "the receiver answered 500"}},
		"busy":         {429, "17", Result{Status: 429, Error: "the receiver answered 429", RetryAfter: 17 * time.Second}},
		"gone":         {410, "", Result{Status: 410, Error: "the receiver answered 410: it does not want these any more", Final: true}},
		"not followed": {302, "", Result{Status: 302, Error: "the receiver answered 302: redirects are not followed, put the final address into the rule", Final: true}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked++
				w.Header().Set("Retry-After", c.header)
				w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
				w.WriteHeader(c.status)
			}))
			defer receiver.Close()
			w := &WebhookSender{Client: loopback.Client(), Secrets: vault{"local:s": newSecret}}
			require.Equal(t, c.want, w.Send(t.Context(), message(Rule{URL: receiver.URL, Secret: "local:s"})))
			require.Equal(t, 1, asked)
		})
	}
}

// Whatever a name resolves to is checked at the moment of dialling.
func TestPrivateAddressesAreNotReached(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	defer receiver.Close()
	_, port, err := net.SplitHostPort(receiver.Listener.Addr().String())
	require.NoError(t, err)
	w := &WebhookSender{Client: Guard{AllowHTTP: true}.Client(), Secrets: vault{"local:s": newSecret}}
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"} {
		r := w.Send(t.Context(), message(Rule{URL: "http://" + host + ":" + port + "/secret-path", Secret: "local:s"}))
		require.NotEmpty(t, r.Error, host)
		require.NotContains(t, r.Error, "secret-path")
		require.Zero(t, r.Status, host)
	}
}

func TestGuard(t *testing.T) {
	refused := []string{
		"127.0.0.1", "127.255.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "0.1.2.3",
		"224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "203.0.113.9", "::", "::1", "fe80::1", "fe80::1%eth0",
		"fc00::1", "fd12::1", "ff02::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1", "2002:7f00:1::", "2002:0a00:0001::1",
		"::7f00:1", "2001:db8::1", "2001::1", "fec0::1", "100::1",
	}
	for _, ip := range refused {
		require.ErrorIs(t, Guard{}.Check(netip.MustParseAddr(ip)), errRefused, ip)
	}
	for _, ip := range []string{"8.8.8.8", "1.1.1.1", "2606:4700::1", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"} {
		require.NoError(t, Guard{}.Check(netip.MustParseAddr(ip)), ip)
	}
	allowed := Guard{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	require.NoError(t, allowed.Check(netip.MustParseAddr("10.1.2.3")))
	require.NoError(t, allowed.Check(netip.MustParseAddr("::ffff:10.1.2.3")))
	require.Error(t, allowed.Check(netip.MustParseAddr("192.168.0.1")))
}

// FuzzGuard: an address that embeds a private one is refused like it.
func FuzzGuard(f *testing.F) {
	f.Add([]byte{10, 0, 0, 1})
	f.Add([]byte{8, 8, 8, 8})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != 4 {
			return
		}
		v4 := netip.AddrFrom4([4]byte(b))
		plain := Guard{}.Check(v4) != nil
		for _, in := range [][]byte{
			append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, b...),
			append([]byte{0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0}, b...),
			append(append([]byte{0x20, 0x02}, b...), make([]byte, 10)...),
		} {
			ip, ok := netip.AddrFromSlice(in)
			if !ok || (Guard{}.Check(ip) != nil) != plain {
				t.Fatalf("%s and %s are judged differently", v4, ip)
			}
		}
	})
}

func TestSlack(t *testing.T) {
	var body string
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body = string(b)
	}))
	defer receiver.Close()
	s := &SlackSender{Client: loopback.Client(), AllowHTTP: true, Secrets: vault{"env:SLACK": receiver.URL + "/T0/B0/secret"}}
	require.Equal(t, Result{Status: 200}, s.Send(t.Context(), message(Rule{URLSecret: "env:SLACK"})))
	require.Contains(t, body, "shop: run.failed")
	require.NotContains(t, body, "<!channel>")
	var decoded map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &decoded))

	// The address is a secret: no error repeats it.
	receiver.Close()
	r := s.Send(t.Context(), message(Rule{URLSecret: "env:SLACK"}))
	require.NotEmpty(t, r.Error)
	require.NotContains(t, r.Error, "secret")
	require.NotEmpty(t, s.Send(t.Context(), message(Rule{URLSecret: "env:NONE"})).Error)
}

// mailServer is enough of an SMTP server for one test.
type mailServer struct {
	net.Listener
	mu sync.Mutex
	// answer to RCPT; got are the lines of the last message, recipients included.
	answer string
	got    []string
}

func newMailServer(t *testing.T, answer string) *mailServer {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &mailServer{Listener: l, answer: answer}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s
}

func (s *mailServer) serve(c net.Conn) {
	defer c.Close()
	say := func(line string) { _, _ = io.WriteString(c, line+"\r\n") }
	say("220 test")
	in := bufio.NewScanner(c)
	data := false
	for in.Scan() {
		line := in.Text()
		s.mu.Lock()
		s.got = append(s.got, line)
		s.mu.Unlock()
		switch word, _, _ := strings.Cut(strings.ToUpper(line), " "); {
		case data && line == ".":
			data = false
			say("250 taken")
		case data:
		case word == "EHLO" || word == "HELO":
			say("250 test")
		case word == "RCPT":
			say(s.answer)
		case word == "DATA":
			data = true
			say("354 go on")
		case word == "QUIT":
			say("221 bye")
			return
		default:
			say("250 fine")
		}
	}
}

func (s *mailServer) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.got, "\n")
}

func TestEmail(t *testing.T) {
	server := newMailServer(t, "250 fine")
	e, err := NewEmailSender(EmailConfig{URL: "smtp://" + server.Addr().String(), From: "tranship@example.org", Insecure: true})
	require.NoError(t, err)
	rule := Rule{To: []string{"a@example.org", "b@example.org"}}
	require.Equal(t, Result{Status: 250}, e.Send(t.Context(), message(rule)))
	got := server.text()
	for _, want := range []string{
		"RCPT TO:<a@example.org>", "RCPT TO:<b@example.org>", "Subject: shop: run.failed", "run 7 of pipeline", "orders, items",
		"Message-ID: <01890a5d-ac96-774b-bcce-b302099a8057@tranship>", "Auto-Submitted: auto-generated",
	} {
		require.Contains(t, got, want)
	}
	require.NotContains(t, got, "\nTo: ")

	for answer, final := range map[string]bool{"550 no such user": true, "450 try later": false} {
		server := newMailServer(t, answer)
		e, err := NewEmailSender(EmailConfig{URL: "smtp://" + server.Addr().String(), From: "tranship@example.org", Insecure: true})
		require.NoError(t, err)
		r := e.Send(t.Context(), message(rule))
		require.NotEmpty(t, r.Error, answer)
		require.Equal(t, final, r.Final, "%s: %+v", answer, r)
	}
	server.Close()
	r := e.Send(t.Context(), message(rule))
	require.NotEmpty(t, r.Error)
	require.False(t, r.Final)
	// Without STARTTLS nothing is sent unless that was allowed.
	strict := newMailServer(t, "250 fine")
	e, err = NewEmailSender(EmailConfig{URL: "smtp://user:pass@" + strict.Addr().String(), From: "tranship@example.org"})
	require.NoError(t, err)
	require.NotEmpty(t, e.Send(t.Context(), message(rule)).Error)
	require.NotContains(t, strict.text(), "DATA")

	none, err := NewEmailSender(EmailConfig{})
	require.NoError(t, err)
	require.True(t, none.Send(t.Context(), message(rule)).Final)
	for _, bad := range []EmailConfig{{URL: "http://x"}, {URL: "smtp://user:s3cret@"}, {URL: "smtp://x"}, {URL: "smtp://u:s3cret%zz@x", From: "a@b"}} {
		_, err := NewEmailSender(bad)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cret")
	}
}
