package main

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/internal/compose/serve"
	"github.com/tranship-io/tranship/pipeline"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	serve.Config
	attemptTime, lease, memory, grace string
	logFormat                         string
	oidc                              access.OIDC
	roles                             map[string]string
	oidcFile                          string
	webhookAllow                      []string
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane: API, schedules and workers",
		Long: `Run the control plane in this process: the API, schedules, and workers that execute
runs. Any number of such processes work together on one database; what one is
doing when it dies goes on in the others.

Without --database (or TRANSHIP_DATABASE_URL) a PostgreSQL server of the process's
own keeps everything in the folder .tranship. --bootstrap-key-file makes the first
organization, and writes an admin key into that file; if there is an organization
it does nothing. Processes on one database share the master key file, with which
secrets are encrypted and keys are signed.

SIGTERM or an interrupt hands over: attempts end at their next safe positions and
go on elsewhere. A second one ends the process at once, which loses nothing.

OTEL_EXPORTER_OTLP_ENDPOINT and its relatives send traces and metrics; /metrics is
for Prometheus.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), &f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.Listen, "listen", "127.0.0.1:8080", "address of the API")
	fl.StringVar(&f.DatabaseURL, "database", "", "URL of the control plane's PostgreSQL database (or TRANSHIP_DATABASE_URL)")
	fl.StringVar(&f.Folder, "folder", ".tranship", "folder for what is kept in files")
	fl.StringVar(&f.MasterKeyFile, "master-key-file", "", "file of the master key (instead of master.key in the folder)")
	fl.StringVar(&f.BootstrapKeyFile, "bootstrap-key-file", "", "make the first organization and write its admin key here")
	fl.StringVar(&f.Organization, "organization", "main", "key of the organization that --bootstrap-key-file makes")
	fl.StringVar(&f.oidc.Issuer, "oidc-issuer", "", "URL of an OIDC issuer whose tokens let members in")
	fl.StringVar(&f.oidc.Audience, "oidc-audience", "", "what its tokens must be for")
	fl.StringVar(&f.oidc.Organization, "oidc-organization", "", "key of the organization that its tokens belong to")
	fl.StringVar(&f.oidc.OrganizationClaim, "oidc-organization-claim", "", "or the claim that holds that key")
	fl.StringVar(&f.oidc.RoleClaim, "oidc-role-claim", "", "claim that holds a role or groups; without it admins add members")
	fl.StringToStringVar(&f.roles, "oidc-role", nil, "role of a value of that claim, such as data-team=operator")
	fl.StringVar(&f.oidcFile, "oidc-file", "", "or a JSON file with several issuers: a list of issuer, audience, organization or organization_claim, role_claim, roles")
	fl.IntVar(&f.Workers, "workers", 4, "attempts that live at once in this process; 0: none, API and schedules only")
	fl.IntVar(&f.MaxRunning, "max-running", 64, "slots of one organization that run at once, over all processes")
	fl.StringVar(&f.lease, "lease", "60s", "time after which the run of a lost worker goes on elsewhere")
	fl.StringVar(&f.attemptTime, "attempt-time", "5m", "longest life of an attempt")
	fl.StringVar(&f.memory, "memory", "256MiB", "memory of an attempt whose pipeline says nothing")
	fl.StringVar(&f.grace, "grace", "25s", "how long a stop waits for safe positions")
	fl.StringArrayVar(&f.webhookAllow, "webhook-allow", nil, "network that notifications may reach although it is not public, such as 10.0.0.0/8; repeatable")
	fl.BoolVar(&f.Webhooks.AllowHTTP, "webhook-http", false, "let notifications go to http:// addresses")
	fl.StringVar(&f.Prices.Currency, "currency", "USD", "currency of the prices")
	fl.Float64Var(&f.Prices.ComputeHour, "price-compute-hour", 0, "price of an hour of an attempt's life")
	fl.Float64Var(&f.Prices.MemoryGiBHour, "price-memory-gib-hour", 0, "price of an hour of a GiB of an attempt's memory")
	fl.Float64Var(&f.Prices.GiB, "price-gib", 0, "price of a GiB written")
	fl.Float64Var(&f.Prices.Run, "price-run", 0, "price of a run")
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	return c
}

// serve runs the control plane until a signal.
func (a *app) serve(ctx context.Context, f *serveFlags) error {
	if f.DatabaseURL == "" {
		f.DatabaseURL, _ = a.lookup("TRANSHIP_DATABASE_URL")
	}
	for _, d := range []struct {
		name, text string
		least      time.Duration
		to         *time.Duration
	}{{"lease", f.lease, time.Second, &f.Lease}, {"attempt-time", f.attemptTime, time.Second, &f.AttemptTime}, {"grace", f.grace, 0, &f.Grace}} {
		v, err := pipeline.ParseDuration(d.text)
		if err != nil || time.Duration(v) < d.least {
			return usageError("a duration such as 60s", "--%s %s cannot be", d.name, d.text)
		}
		*d.to = time.Duration(v)
	}
	memory, err := pipeline.ParseSize(f.memory)
	if err != nil || memory < pipeline.MinMemory {
		return usageError("a size such as 256MiB", "--memory %s cannot be", f.memory)
	}
	f.Memory = int64(memory)
	switch {
	case f.Workers < 0 || f.Workers > 1000:
		return usageError("", "--workers %d is not between 0 and 1000", f.Workers)
	case f.Workers == 0:
		f.Workers = -1
	}
	for _, text := range f.webhookAllow {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return usageError("a network such as 10.0.0.0/8 or fd00::/8", "--webhook-allow %s cannot be", text)
		}
		f.Webhooks.Allow = append(f.Webhooks.Allow, network)
	}
	if f.MaxRunning < 1 {
		return usageError("", "--max-running %d is not a number of slots", f.MaxRunning)
	}
	if f.oidc.Issuer != "" {
		f.oidc.Roles = map[string]control.Role{}
		for value, role := range f.roles {
			f.oidc.Roles[value] = control.Role(role)
		}
		f.OIDC = []access.OIDC{f.oidc}
	}
	if f.oidcFile != "" {
		if f.oidc.Issuer != "" {
			return usageError("put the issuer into the file", "--oidc-file and --oidc-issuer cannot be given together")
		}
		issuers, err := readIssuers(f.oidcFile)
		if err != nil {
			return err
		}
		f.OIDC = issuers
	}
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if a.verbose {
		options.Level = slog.LevelDebug
	}
	switch f.logFormat {
	case "text":
		f.Log = slog.New(slog.NewTextHandler(a.stderr, options))
	case "json":
		f.Log = slog.New(slog.NewJSONHandler(a.stderr, options))
	default:
		return usageError("text or json", "--log-format %s cannot be", f.logFormat)
	}
	f.Catalog, f.Lookup, f.Version = catalog.New(a.stdout), a.lookup, a.version
	a.ownPostgres(f)
	return serve.Run(ctx, f.Config)
}

// ownPostgres says where the server of the process's own comes from.
func (a *app) ownPostgres(f *serveFlags) {
	for name, to := range map[string]*string{"VERSION": &f.PostgresVersion, "CACHE": &f.PostgresCache, "REPOSITORY": &f.PostgresRepository} {
		if v, ok := a.lookup("TRANSHIP_PG_" + name); ok {
			*to = strings.TrimSpace(v)
		}
	}
}
