package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tranship-io/tranship/control/secrets"
)

// Resolver resolves references to secrets.
type Resolver interface {
	Resolve(ctx context.Context, organization uuid.UUID, ref secrets.Ref) (string, error)
}

// WebhookSender posts events, signed as Standard Webhooks has it.
type WebhookSender struct {
	Client  *http.Client
	Secrets Resolver
}

var _ Sender = (*WebhookSender)(nil)

// Send implements [Sender].
func (w *WebhookSender) Send(ctx context.Context, m Message) Result {
	signature, err := w.sign(ctx, m)
	if err != nil {
		return Result{Error: err.Error()}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Rule.URL, bytes.NewReader(m.Payload))
	if err != nil {
		return Result{Error: "the rule's URL cannot be used", Final: true}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "tranship")
	req.Header.Set(standardwebhooks.HeaderWebhookID, m.ID.String())
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(m.At.Unix(), 10))
	req.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	return post(w.Client, req)
}

// sign signs with every secret that is valid, so that a receiver may change over
// at any time between.
func (w *WebhookSender) sign(ctx context.Context, m Message) (string, error) {
	refs := []secrets.Ref{m.Rule.Secret}
	if m.Rule.OldSecret != "" && m.At.Before(m.Rule.OldUntil) {
		refs = append(refs, m.Rule.OldSecret)
	}
	var all []string
	for _, ref := range refs {
		secret, err := w.Secrets.Resolve(ctx, m.Organization, ref)
		if err != nil {
			return "", fmt.Errorf("sign webhook: %w", err)
		}
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return "", errors.New("sign webhook: the stored secret is not in base64")
		}
		s, err := hook.Sign(m.ID.String(), m.At, m.Payload)
		if err != nil {
			return "", errors.New("sign webhook: the signature cannot be made")
		}
		all = append(all, s)
	}
	return strings.Join(all, " "), nil
}

// post sends a request and judges the answer. What it tells of errors names the
// host at most, since the rest of an address may be secret (invariant 10).
func post(client *http.Client, req *http.Request) Result {
	resp, err := client.Do(req)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		if errors.Is(err, errRefused) {
			return Result{Final: true, Error: fmt.Sprintf("%s: the host %s does not resolve to a public address; the operator can allow its network", errRefused, req.URL.Hostname())}
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return Result{Error: "the receiver did not answer in " + attemptTime.String()}
		}
		return Result{Error: "the receiver cannot be reached: " + strings.ReplaceAll(err.Error(), req.URL.String(), req.URL.Host)}
	}
	defer func() { _ = resp.Body.Close() }()
	// Read a little so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	r := Result{Status: resp.StatusCode}
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		r.Error, r.Final = fmt.Sprintf("the receiver answered %d: redirects are not followed, put the final address into the rule", resp.StatusCode), true
	case resp.StatusCode == http.StatusGone:
		r.Error, r.Final = "the receiver answered 410: it does not want these any more", true
	default:
		r.Error = fmt.Sprintf("the receiver answered %d", resp.StatusCode)
		r.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
	}
	return r
}

// retryAfter reads the header's seconds or date.
func retryAfter(header string) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil && seconds > 0 && seconds < 1<<30 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
