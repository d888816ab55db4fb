package notify

import (
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/secrets"
)

// Channel is how a rule's deliveries travel.
type Channel string

// The channels.
const (
	Webhook Channel = "webhook"
	Slack   Channel = "slack"
	Email   Channel = "email"
)

// Bounds of a rule.
const (
	MaxName       = 63
	MaxRecipients = 100
	MinWatch      = time.Minute
	MaxWatch      = 366 * 24 * time.Hour
	// SecretOverlap is how long the secret before the last rotation signs too.
	SecretOverlap = 24 * time.Hour
)

// Rule chooses events and says where they go.
type Rule struct {
	ID   uuid.UUID
	Name string
	// Pipeline is uuid.Nil for all pipelines; PipelineName is filled in by the store.
	Pipeline     uuid.UUID
	PipelineName string
	// Resource is a pattern (* and ?) of which one of the event's resources must
	// match; empty: any event.
	Resource string
	Events   []string
	// StaleAfter is how old a pipeline's last success may be before the event
	// pipeline.stale; NoProgressAfter how long a run's checkpoints may stand still
	// before run.no_progress.
	StaleAfter, NoProgressAfter time.Duration
	Channel                     Channel
	// URL is a webhook's address.
	URL string
	// URLSecret refers to the address of a Slack incoming webhook, which is secret.
	URLSecret secrets.Ref
	// To are the recipients of emails.
	To     []string
	Paused bool
	// Secret refers to the secret that signs webhooks, OldSecret to the one before,
	// which signs too until OldUntil. SecretPrefix is the beginning of the first.
	Secret, OldSecret    secrets.Ref
	OldUntil             time.Time
	SecretPrefix         string
	Version              int64
	CreatedAt, UpdatedAt time.Time
}

// Matches tells whether a rule wants an event.
func (r Rule) Matches(e Event) bool {
	named := slices.Contains(r.Events, e.Type)
	if e.Type == RunPartial {
		// Who wants to know of failures means these too.
		named = named || slices.Contains(r.Events, RunFailed)
	}
	if r.Paused || !named || r.Pipeline != uuid.Nil && r.Pipeline != e.Pipeline {
		return false
	}
	if r.Resource == "" {
		return true
	}
	return slices.ContainsFunc(e.Resources, func(name string) bool { return matchResource(r.Resource, name) })
}

// WatchFrom returns when a rule that watches has to look because of an event; ok is
// false if the event changes nothing about that.
func (r Rule) WatchFrom(e Event) (at time.Time, ok bool) {
	switch {
	case r.Paused || r.Pipeline != uuid.Nil && r.Pipeline != e.Pipeline:
		return at, false
	case r.StaleAfter > 0 && e.Type == RunCompleted:
		return e.At.Add(r.StaleAfter), true
	case r.NoProgressAfter > 0 && e.Type == AttemptStarted:
		return e.At.Add(r.NoProgressAfter), true
	}
	return at, false
}

// matchResource matches a name against a pattern in which * stands for any text
// and ? for one character.
func matchResource(pattern, name string) bool {
	// path.Match keeps * from crossing a slash, which means nothing here.
	const noSlash = "\x01"
	ok, err := path.Match(strings.ReplaceAll(escapeClasses(pattern), "/", noSlash), strings.ReplaceAll(name, "/", noSlash))
	return ok && err == nil
}

// escapeClasses takes the meaning from all but * and ?.
func escapeClasses(pattern string) string {
	return strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`).Replace(pattern)
}

// ID is the id of the delivery of an event by a rule: the same for the same pair.
func ID(rule uuid.UUID, eventKey string) uuid.UUID { return uuid.NewSHA1(rule, []byte(eventKey)) }

// check returns what is wrong with a rule.
func (r Rule) check(allowHTTP bool) error {
	var problems []control.Problem
	add := func(path, hint, format string, args ...any) {
		problems = append(problems, control.Problem{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if r.Name == "" || len(r.Name) > MaxName {
		add("name", "", "a name has between 1 and %d bytes", MaxName)
	}
	if len(r.Events) == 0 {
		add("events", "", "a rule names at least one event")
	}
	for i, e := range r.Events {
		if !slices.Contains(EventTypes(), e) {
			add(fmt.Sprintf("events[%d]", i), "events: "+strings.Join(EventTypes(), ", "), "there is no event %q", e)
		}
	}
	watch := func(path, event string, d time.Duration) {
		named := slices.Contains(r.Events, event)
		switch {
		case named && d == 0:
			add(path, "", "the event %s needs it", event)
		case !named && d != 0:
			add(path, fmt.Sprintf("add %s to events", event), "it means nothing without the event %s", event)
		case named && (d < MinWatch || d > MaxWatch):
			add(path, "", "it is between %s and %s", MinWatch, MaxWatch)
		}
	}
	watch("stale_after", PipelineStale, r.StaleAfter)
	watch("no_progress_after", RunNoProgress, r.NoProgressAfter)
	if r.Channel != Webhook && r.URL != "" {
		add("url", "", "only a webhook has an address")
	}
	if r.Channel != Slack && r.URLSecret != "" {
		add("url_secret", "", "only slack has a secret address")
	}
	if r.Channel != Email && len(r.To) > 0 {
		add("to", "", "only email has recipients")
	}
	switch r.Channel {
	case Webhook:
		if err := checkURL(r.URL, allowHTTP); err != nil {
			add("url", "", "%s", err)
		}
	case Slack:
		// An address in the place of a reference would be kept, and shown.
		_, err := secrets.Parse(string(r.URLSecret))
		if r.URLSecret != "" && (err != nil || strings.HasPrefix(r.URLSecret.Name(), "//")) {
			add("url_secret", "write <provider>:<name>, such as env:SLACK_URL", "this is no reference to a secret")
		}
		if r.URLSecret == "" {
			add("url_secret", "store the webhook's address as a secret and refer to it", "slack needs the address of an incoming webhook")
		}
	case Email:
		if len(r.To) == 0 || len(r.To) > MaxRecipients {
			add("to", "", "an email has between 1 and %d recipients", MaxRecipients)
		}
		for i, to := range r.To {
			if a, err := mail.ParseAddress(to); err != nil || a.Address != to {
				add(fmt.Sprintf("to[%d]", i), "write name@example.org", "%q is no email address", to)
			}
		}
	default:
		add("channel", "", "channel is %s, %s or %s", Webhook, Slack, Email)
	}
	if problems != nil {
		return &control.InvalidError{Problems: problems}
	}
	return nil
}

// checkURL refuses addresses that a webhook cannot have.
func checkURL(text string, allowHTTP bool) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return errors.New("it is no URL with a host")
	case u.Scheme != "https" && (u.Scheme != "http" || !allowHTTP):
		return errors.New("it must begin with https://")
	case u.User != nil:
		return errors.New("it must not contain a user or password: the receiver checks the signature")
	case u.Fragment != "":
		return errors.New("it must not have a fragment")
	}
	return nil
}
