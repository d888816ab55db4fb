// Package dblogin logs in to the control plane's database: with IAM, or with a
// secret that may be rotated.
package dblogin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/rds/auth"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
)

// IAM logs in as one user with a token that each connection gets anew: it is
// computed, not asked for, and valid for 15 minutes.
type IAM struct {
	config         aws.Config
	endpoint, user string
}

// NewIAM logs in to the host of a database's URL as its user.
func NewIAM(c aws.Config, u *url.URL) (*IAM, error) {
	if u.User.Username() == "" {
		return nil, errors.New("the URL of the database names no user to log in with IAM")
	}
	if _, set := u.User.Password(); set {
		return nil, errors.New("the URL of the database must not hold a password")
	}
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	return &IAM{config: c, endpoint: net.JoinHostPort(u.Hostname(), port), user: u.User.Username()}, nil
}

// Login returns user and token; a token is never served twice.
func (l *IAM) Login(ctx context.Context, _ bool) (user, password string, err error) {
	token, err := auth.BuildAuthToken(ctx, l.endpoint, l.config.Region, l.user, l.config.Credentials)
	if err != nil {
		return "", "", fmt.Errorf("make an IAM token for %s at %s: %w", l.user, l.endpoint, err)
	}
	return l.user, token, nil
}

// Secret logs in with a secret of Secrets Manager, which is read once, and once
// more after the server refused what it held: it was rotated meanwhile.
type Secret struct {
	client *secretsmanager.Client
	arn    string

	mu   sync.Mutex
	have *document
}

// document is a secret's JSON, as RDS writes it.
type document struct {
	Username string      `json:"username"`
	Password string      `json:"password"`
	Host     string      `json:"host"`
	Port     json.Number `json:"port"`
	Database string      `json:"dbname"`
}

// NewSecret logs in with the secret of an ARN.
func NewSecret(c aws.Config, arn string) *Secret {
	return &Secret{client: secretsmanager.NewFromConfig(c), arn: arn}
}

// Login returns user and password.
func (l *Secret) Login(ctx context.Context, refused bool) (user, password string, err error) {
	d, err := l.read(ctx, refused)
	return d.Username, d.Password, err
}

// Place puts the secret's host, port and database into a URL, where it has them.
func (l *Secret) Place(ctx context.Context, u *url.URL) error {
	d, err := l.read(ctx, false)
	if err != nil {
		return err
	}
	host, port := u.Hostname(), u.Port()
	if d.Host != "" {
		host = d.Host
	}
	if n, err := strconv.ParseUint(d.Port.String(), 10, 16); err == nil {
		port = strconv.FormatUint(n, 10)
	}
	if port != "" {
		host = net.JoinHostPort(host, port)
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	u.Host = host
	if d.Database != "" {
		u.Path = "/" + d.Database
	}
	return nil
}

func (l *Secret) read(ctx context.Context, again bool) (document, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.have != nil && !again {
		return *l.have, nil
	}
	out, err := l.client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &l.arn})
	if err != nil {
		return document{}, fmt.Errorf("read the secret of the database, %s: %w", l.arn, err)
	}
	var d document
	if json.Unmarshal([]byte(aws.ToString(out.SecretString)), &d) != nil || d.Username == "" || d.Password == "" {
		// What it holds is not repeated (invariant 10).
		return document{}, fmt.Errorf("the secret of the database, %s, is no JSON object with username and password", l.arn)
	}
	l.have = &d
	return d, nil
}
