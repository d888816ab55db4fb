package transhipcdk

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
)

var validName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,22}[a-z0-9]$`)

// retentions are the days that CloudWatch Logs can keep logs for.
var retentions = []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}

func (b *Base) setDefaults() {
	setDefault(&b.Name, "tranship")
	setDefault(&b.Organization, "main")
	setDefault(&b.Functions, filepath.Join("dist", "functions"))
	setDefault(&b.Architecture, ARM64)
	setDefault(&b.LogRetention, 30)
	setDefault(&b.LogLevel, "info")
	setDefault(&b.Database.User, "postgres")
}

func (p *Props) setDefaults() {
	p.Base.setDefaults()
	setDefault(&p.Authorization, Keys)
	setDefault(&p.Rate, 100)
	setDefault(&p.Burst, 2*p.Rate)
	setDefault(&p.WorkerTimeout, 15*time.Minute)
	setDefault(&p.WorkerMemory, 1769)
	setDefault(&p.MaxRunning, 64)
	setDefault(&p.Lease, time.Minute)
	c := &p.Concurrency
	setDefault(&c.API, 40)
	setDefault(&c.Compile, 10)
	setDefault(&c.Sweep, 4)
	setDefault(&c.Inspect, 10)
	setDefault(&c.Worker, 100)
	setDefault(&c.Dispatch, 2)
	setDefault(&c.Project, 20)
	setDefault(&c.Deliver, 10)
	if f := p.Fargate; f != nil {
		setDefault(&c.Tasks, 64)
		setDefault(&f.CPU, 2048)
		setDefault(&f.Memory, 8192)
		setDefault(&f.AttemptTime, time.Hour)
	} else {
		c.Tasks, c.Dispatch = 0, 0
	}
}

func setDefault[T comparable](value *T, def T) {
	var zero T
	if *value == zero {
		*value = def
	}
}

// Validate returns every reason why the properties cannot work.
func (b Base) Validate() error {
	b.setDefaults()
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !validName.MatchString(b.Name) {
		wrong("name %q: use lower-case letters, digits and hyphens, 2 to 24 bytes", b.Name)
	}
	if b.Architecture != ARM64 && b.Architecture != AMD64 {
		wrong("architecture %q: use arm64 or amd64", b.Architecture)
	}
	if !slices.Contains(retentions, b.LogRetention) {
		wrong("log retention of %d days: CloudWatch Logs knows %v", b.LogRetention, retentions)
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, b.LogLevel) {
		wrong("log level %q: use debug, info, warn or error", b.LogLevel)
	}
	errs = append(errs, b.Database.validate())
	if n := b.Network; n != nil && (n.VPC == nil || n.Subnets == nil || n.SecurityGroup == nil) {
		wrong("network: VPC, subnets and security group go together")
	}
	return errors.Join(errs...)
}

func (d Database) validate() error {
	var errs []error
	if d.URL == "" {
		return errors.New("database: the URL is missing; it looks like postgres://user@host:5432/database?sslmode=verify-full")
	}
	// The URL of a database that the CDK makes has tokens, which are no URL yet.
	if !*awscdk.Token_IsUnresolved(d.URL) {
		u, err := url.Parse(d.URL)
		if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Host == "" {
			// The parser's error would quote the URL, and with it a password.
			return errors.New("database: the URL cannot be read; it looks like postgres://user@host:5432/database?sslmode=verify-full")
		}
		if _, set := u.User.Password(); set || u.Query().Has("password") {
			errs = append(errs, errors.New("database: the URL has a password; put it into a Secrets Manager secret and give its ARN, because everybody who may describe a function reads its environment"))
		}
	}
	if d.SecretARN == "" && d.ResourceID == "" {
		errs = append(errs, errors.New("database: give the ARN of a secret, or for IAM authentication the resource id (cluster-… or db-…) of the server"))
	}
	if d.MaxConnections <= 0 {
		errs = append(errs, errors.New("database: say the server's max_connections (SHOW max_connections), which bounds how much runs at once"))
	}
	return errors.Join(errs...)
}

// Validate returns every reason why the properties cannot work.
func (p Props) Validate() error {
	if p.Fargate != nil {
		f := *p.Fargate
		p.Fargate = &f
	}
	p.setDefaults()
	errs := []error{p.Base.Validate()}
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if p.Authorization != Keys && p.Authorization != IAM {
		wrong("authorization %q: use keys or iam", p.Authorization)
	}
	if p.WorkerTimeout < 15*time.Second || p.WorkerTimeout > 15*time.Minute {
		wrong("worker timeout %v: Lambda ends a function after 15 min, and an attempt needs at least 15 s", p.WorkerTimeout)
	}
	if p.WorkerMemory < 512 || p.WorkerMemory > 10240 {
		wrong("worker memory of %d MB: use 512 to 10240", p.WorkerMemory)
	}
	if u, err := url.Parse(p.SMTPURL); err != nil {
		wrong("SMTP URL: it cannot be read; it looks like smtps://host:465")
	} else if _, set := u.User.Password(); set {
		wrong("SMTP URL: it has a password, and everybody who may describe a function reads its environment; use a relay that lets the installation in without one")
	}
	if f := p.Fargate; f != nil {
		errs = append(errs, f.validate())
	}
	errs = append(errs, p.Concurrency.validate(p.Database.MaxConnections))
	return errors.Join(errs...)
}

func (f *Fargate) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("fargate: "+format, args...)) }
	if f.Cluster == "" || len(f.Subnets) == 0 {
		wrong("the cluster and its subnets are missing")
	}
	switch {
	case f.Image == "" && f.TaskDefinition == "":
		wrong("the image's digest is missing; build it with: make image")
	case f.Image != "" && f.TaskDefinition != "":
		wrong("give an image or a task definition, not both")
	case f.Image != "" && !strings.Contains(f.Image, "@sha256:"):
		wrong("the image %q is not named by digest (repository@sha256:…); a tag may change under a run", f.Image)
	case f.Image != "" && f.Repository == "":
		wrong("the ARN of the image's repository is missing")
	}
	return errors.Join(errs...)
}

// share of max_connections that is left to people, migrations and monitoring.
const spareConnections = 0.20

// Connections that the functions and tasks hold at most: two in what runs an
// attempt, one elsewhere.
func (c Concurrency) Connections() int {
	const migrate = 1
	return c.API + c.Compile + c.Sweep + c.Inspect + c.Dispatch + c.Project + c.Deliver + 2*c.Worker + 2*c.Tasks + migrate
}

func (c Concurrency) validate(maxConnections int) error {
	var errs []error
	for _, m := range []struct {
		name string
		n    int
	}{{"worker", c.Worker}, {"project", c.Project}, {"deliver", c.Deliver}} {
		if m.n < 2 || m.n > 1000 {
			errs = append(errs, fmt.Errorf("concurrency of %s is %d: a mapping allows 2 to 1000", m.name, m.n))
		}
	}
	if allowed := int(float64(maxConnections) * (1 - spareConnections)); maxConnections > 0 && c.Connections() > allowed {
		errs = append(errs, fmt.Errorf("concurrency needs up to %d connections, and 80 %% of the database's max_connections (%d) are %d: lower concurrency (worker and tasks count twice) or use a larger database",
			c.Connections(), maxConnections, allowed))
	}
	return errors.Join(errs...)
}

// zip returns the path of a function's zip.
func (b Base) zip(function string) (string, error) {
	path := filepath.Join(b.Functions, function+".zip")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("function %s: there is no %s; build it with: make functions", function, path)
	}
	return path, nil
}
