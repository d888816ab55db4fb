package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// SlackSender posts to incoming webhooks of Slack.
type SlackSender struct {
	Client    *http.Client
	Secrets   Resolver
	AllowHTTP bool
}

var _ Sender = (*SlackSender)(nil)

// Send implements [Sender].
func (s *SlackSender) Send(ctx context.Context, m Message) Result {
	address, err := s.Secrets.Resolve(ctx, m.Organization, m.Rule.URLSecret)
	if err != nil {
		return Result{Error: "find the webhook's address: " + err.Error()}
	}
	if err := checkURL(address, s.AllowHTTP); err != nil {
		return Result{Error: "the address that url_secret refers to cannot be used: " + err.Error(), Final: true}
	}
	title, lines, err := text(m)
	if err != nil {
		return Result{Error: err.Error(), Final: true}
	}
	body, err := json.Marshal(map[string]any{
		"text": title,
		"blocks": []any{
			map[string]any{"type": "header", "text": map[string]any{"type": "plain_text", "text": title}},
			map[string]any{"type": "section", "text": map[string]any{"type": "mrkdwn", "text": escapeSlack(strings.Join(lines, "\n"))}},
			map[string]any{"type": "context", "elements": []any{map[string]any{"type": "mrkdwn", "text": "delivery " + m.ID.String()}}},
		},
	})
	if err != nil {
		return Result{Error: err.Error(), Final: true}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return Result{Error: "the address that url_secret refers to cannot be used", Final: true}
	}
	req.Header.Set("Content-Type", "application/json")
	r := post(s.Client, req)
	if r.Status == http.StatusNotFound || r.Status == http.StatusForbidden {
		// Slack says so of a webhook that was removed or turned off.
		r.Final = true
	}
	return r
}

// escapeSlack takes the meaning from Slack's three control characters, so that
// no text of a row or error can mention people or hide a link.
func escapeSlack(s string) string {
	const limit = 2900 // a section holds 3000
	s = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// payloadText is what people read of a payload.
type payloadText struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"`
	Data      struct {
		Message   string   `json:"message"`
		Pipeline  string   `json:"pipeline"`
		RunID     string   `json:"run_id"`
		Resources []string `json:"resources"`
	} `json:"data"`
}

// text turns a message into a title and lines for people.
func text(m Message) (title string, lines []string, err error) {
	var p payloadText
	if err := json.Unmarshal(m.Payload, &p); err != nil {
		return "", nil, fmt.Errorf("read the delivery's payload: %w", err)
	}
	title = p.Type
	if p.Data.Pipeline != "" {
		title = p.Data.Pipeline + ": " + p.Type
	}
	if len(title) > 150 {
		title = strings.ToValidUTF8(title[:150], "")
	}
	lines = append(lines, p.Data.Message)
	if p.Data.RunID != "" {
		lines = append(lines, "run "+p.Data.RunID)
	}
	if n := len(p.Data.Resources); n > 0 {
		shown := p.Data.Resources[:min(n, 10)]
		line := "resources " + strings.Join(shown, ", ")
		if n > len(shown) {
			line += fmt.Sprintf(" and %d more", n-len(shown))
		}
		lines = append(lines, line)
	}
	return title, append(lines, "at "+p.Timestamp), nil
}
