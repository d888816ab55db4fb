package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/wneessen/go-mail"
)

// EmailConfig is the installation's mail server.
type EmailConfig struct {
	// URL is smtp://user:password@host:port (with STARTTLS, or in the clear only if
	// Insecure) or smtps://…; empty: emails cannot be sent.
	URL string
	// From is the sender's address.
	From string
	// Insecure lets smtp:// go on if the server has no STARTTLS.
	Insecure bool
	// TLS is for servers whose certificate is not in the system's roots; nil: those.
	TLS *tls.Config
}

// EmailSender sends emails through the installation's server.
type EmailSender struct {
	from    string
	host    string
	options []mail.Option
}

var _ Sender = (*EmailSender)(nil)

// NewEmailSender checks the configuration.
func NewEmailSender(c EmailConfig) (*EmailSender, error) {
	if c.URL == "" {
		return &EmailSender{}, nil
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Hostname() == "" || u.Scheme != "smtp" && u.Scheme != "smtps" {
		// The parser's error would quote the password (invariant 10).
		return nil, errors.New("the mail server's URL looks like smtp://user:password@host:587 or smtps://user:password@host:465")
	}
	if c.From == "" {
		return nil, errors.New("emails need a sender's address")
	}
	s := &EmailSender{from: c.From, host: u.Hostname()}
	s.options = append(s.options, mail.WithTimeout(attemptTime))
	port := 587
	switch {
	case u.Scheme == "smtps":
		port = 465
		s.options = append(s.options, mail.WithSSL())
	case c.Insecure:
		s.options = append(s.options, mail.WithTLSPolicy(mail.TLSOpportunistic))
	default:
		s.options = append(s.options, mail.WithTLSPolicy(mail.TLSMandatory))
	}
	if u.Port() != "" {
		if port, err = strconv.Atoi(u.Port()); err != nil {
			return nil, errors.New("the mail server's port is not a number")
		}
	}
	s.options = append(s.options, mail.WithPort(port))
	if c.TLS != nil {
		s.options = append(s.options, mail.WithTLSConfig(c.TLS))
	}
	if user := u.User.Username(); user != "" {
		password, _ := u.User.Password()
		s.options = append(s.options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(user), mail.WithPassword(password))
	}
	return s, nil
}

// Send implements [Sender].
func (s *EmailSender) Send(ctx context.Context, m Message) Result {
	if s.host == "" {
		return Result{Error: "this installation has no mail server: the operator configures one", Final: true}
	}
	message, err := s.compose(m)
	if err != nil {
		return Result{Error: err.Error(), Final: true}
	}
	client, err := mail.NewClient(s.host, s.options...)
	if err != nil {
		return Result{Error: "the mail server's configuration cannot be used"}
	}
	if err := client.DialAndSendWithContext(ctx, message); err != nil {
		return mailResult(err)
	}
	return Result{Status: 250}
}

func (s *EmailSender) compose(m Message) (*mail.Msg, error) {
	title, lines, err := text(m)
	if err != nil {
		return nil, err
	}
	message := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := message.From(s.from); err != nil {
		return nil, fmt.Errorf("the sender's address cannot be used: %w", err)
	}
	// Recipients don't see one another.
	if err := message.Bcc(m.Rule.To...); err != nil {
		return nil, fmt.Errorf("a recipient's address cannot be used: %w", err)
	}
	message.Subject(strings.Join(strings.Fields(title), " "))
	message.SetDateWithValue(m.At)
	// A mail system drops a second copy of the same message.
	message.SetMessageIDWithValue(m.ID.String() + "@tranship")
	message.SetGenHeader(mail.Header("Auto-Submitted"), "auto-generated")
	message.SetBodyString(mail.TypeTextPlain, strings.Join(lines, "\n")+"\n")
	return message, nil
}

// mailResult judges an error: what the server refuses for good is not tried again.
func mailResult(err error) Result {
	r := Result{Error: "the mail server did not take it: " + err.Error()}
	var failed *mail.SendError
	if errors.As(err, &failed) {
		r.Status = failed.ErrorCode()
		r.Final = !failed.IsTemp() && r.Status >= 500
	}
	var netError net.Error
	if errors.As(err, &netError) {
		r.Final = false
	}
	return r
}
