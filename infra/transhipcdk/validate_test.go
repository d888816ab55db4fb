package transhipcdk

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func usual() Props {
	return Props{Base: Base{Database: Database{
		URL: "postgres://u@db.example:5432/t?sslmode=verify-full", SecretARN: "arn:aws:secretsmanager:eu-west-1:111122223333:secret:db", MaxConnections: 823,
	}}}
}

func TestPropertiesThatWork(t *testing.T) {
	require.NoError(t, usual().Validate())

	p := usual()
	p.Fargate = &Fargate{Cluster: "c", Subnets: []string{"s"}, TaskDefinition: "f"}
	require.NoError(t, p.Validate())
	require.Zero(t, p.Fargate.CPU, "what the caller gave is left alone")
}

func TestPropertiesThatCannotWork(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Props)
		want   string
	}{
		"name":                 {func(p *Props) { p.Name = "Tranship" }, "lower-case letters"},
		"architecture":         {func(p *Props) { p.Architecture = "x86" }, "arm64 or amd64"},
		"no database":          {func(p *Props) { p.Database.URL = "" }, "the URL is missing"},
		"password":             {func(p *Props) { p.Database.URL = "postgres://u:hush@h/t" }, "Secrets Manager"},
		"password in query":    {func(p *Props) { p.Database.URL = "postgres://u@h/t?password=hush" }, "Secrets Manager"},
		"unreadable URL":       {func(p *Props) { p.Database.URL = "postgres://u:hush@h:x/t" }, "cannot be read"},
		"no way to sign in":    {func(p *Props) { p.Database.SecretARN = "" }, "resource id"},
		"unknown connections":  {func(p *Props) { p.Database.MaxConnections = 0 }, "SHOW max_connections"},
		"too few connections":  {func(p *Props) { p.Database.MaxConnections = 300 }, "up to 295 connections, and 80 % of the database's max_connections (300) are 240"},
		"mapping of one":       {func(p *Props) { p.Concurrency.Deliver = 1 }, "concurrency of deliver is 1"},
		"retention":            {func(p *Props) { p.LogRetention = 8 }, "CloudWatch Logs knows"},
		"log level":            {func(p *Props) { p.LogLevel = "loud" }, "debug, info, warn or error"},
		"authorization":        {func(p *Props) { p.Authorization = "none" }, "keys or iam"},
		"short worker":         {func(p *Props) { p.WorkerTimeout = time.Second }, "at least 15 s"},
		"small worker":         {func(p *Props) { p.WorkerMemory = 128 }, "512 to 10240"},
		"SMTP password":        {func(p *Props) { p.SMTPURL = "smtps://u:hush@h" }, "SMTP URL: it has a password"},
		"fargate without task": {func(p *Props) { p.Fargate = &Fargate{Cluster: "c", Subnets: []string{"s"}} }, "make image"},
		"image by tag": {func(p *Props) {
			p.Fargate = &Fargate{Cluster: "c", Subnets: []string{"s"}, Image: "r:latest", Repository: "r"}
		}, "not named by digest"},
	} {
		t.Run(name, func(t *testing.T) {
			p := usual()
			c.change(&p)
			err := p.Validate()
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "hush", "no secret in an error (invariant 10)")
		})
	}
}

func TestPlatformsThatCannotWork(t *testing.T) {
	require.NoError(t, PlatformProps{}.Validate())
	for name, c := range map[string]struct {
		props PlatformProps
		want  string
	}{
		"network":            {PlatformProps{Network: "vpc"}, "public, private or existing"},
		"NAT in public":      {PlatformProps{NatGateway: true}, "takes no NAT gateway"},
		"existing, no VPC":   {PlatformProps{Network: Existing}, "a VPC is given with existing"},
		"VPC, not existing":  {PlatformProps{VPC: &ExistingVPC{}}, "a VPC is given with existing"},
		"VPC with one zone":  {PlatformProps{Network: Existing, VPC: &ExistingVPC{ID: "v", Subnets: []string{"a"}, AvailabilityZones: []string{"z"}}}, "at least two subnets"},
		"more than at most":  {PlatformProps{MinACU: 8}, "capacity"},
		"backups for longer": {PlatformProps{BackupDays: 40}, "1 to 35"},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, c.props.Validate(), c.want) })
	}
}

// AWS's own figures; between them the lower one counts.
func TestMaxConnectionsFollowCapacity(t *testing.T) {
	for acu, want := range map[float64]int{1: 189, 2: 189, 4: 823, 6: 823, 8: 1669, 128: 1669} {
		require.Equal(t, want, maxConnections(acu), "%g ACU", acu)
	}
}
