package installation

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/internal/pgtest"
)

// login is the user that functions sign in as: it owns the database and may create
// roles, but is no superuser, as no user of a managed PostgreSQL is one. Roles named
// tranship_… are the product's.
const login = "control"

// maxConnections of the server, and what infra is told of: its default concurrencies
// need 425 connections, and may take 80 %.
const maxConnections = 600

// startDatabase starts a PostgreSQL server with an empty database for the control
// plane. DATABASE_URL is its superuser's, for a look inside and for ends of pipelines.
func (i *Installation) startDatabase(ctx context.Context) error {
	server, err := pgtest.Start(ctx, pgtest.Config{Params: map[string]string{"max_connections": fmt.Sprint(maxConnections)}})
	if err != nil {
		return err
	}
	i.database = server
	i.env["DATABASE_URL"] = server.URL("")
	conn, err := pgx.Connect(ctx, server.URL(""))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	i.password = rand.Text()
	for _, sql := range []string{
		fmt.Sprintf(`CREATE ROLE %s LOGIN CREATEROLE PASSWORD '%s'`, login, i.password),
		fmt.Sprintf(`CREATE DATABASE %s OWNER %s`, Name, login),
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("prepare the control plane's database: %w", err)
		}
	}
	return nil
}

// databaseURL is what functions get: without user and password, which the secret has.
func (i *Installation) databaseURL() (string, error) {
	u, err := url.Parse(i.database.URL(Name))
	if err != nil {
		return "", err
	}
	u.User = nil
	u.RawQuery = "sslmode=disable"
	return u.String(), nil
}
