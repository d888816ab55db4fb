package transhipcdk

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
)

// Architecture is the processor that functions and tasks run on.
type Architecture string

// Architectures.
const (
	ARM64 Architecture = "arm64"
	AMD64 Architecture = "amd64"
)

// Authorization is the way in which API Gateway lets requests in.
type Authorization string

// Ways of authorization.
const (
	// Keys lets in API keys and OIDC tokens, which the function authorizer
	// verifies.
	Keys Authorization = "keys"
	// IAM lets in requests signed by principals of AWS (SigV4) that may call
	// execute-api:Invoke on the API.
	IAM Authorization = "iam"
)

// Base is what every construct of an installation is told alike.
type Base struct {
	// Name of the installation, the beginning of every resource's name: lower-case
	// letters, digits, hyphens, at most 24 bytes. Empty: "tranship".
	Name string
	// Organization is the key of the first one, which the migration makes. Empty:
	// "main".
	Organization string
	// Functions is the folder of the functions' zips. Empty: "dist/functions".
	Functions string
	// Architecture must be the one that the zips were built for. Empty: ARM64.
	Architecture Architecture
	// Database is the control plane's PostgreSQL. Required.
	Database Database
	// Network is where the functions run. Nil: outside of any VPC.
	Network *Network
	// LogRetention is how many days logs are kept; one of the values that
	// CloudWatch Logs knows. 0: 30.
	LogRetention int
	// LogLevel is debug, info, warn or error. Empty: info.
	LogLevel string
	// Unreserved leaves out every reserved concurrency, for accounts whose limit
	// of concurrent executions is too low for it (docs/deploy.md, quotas). Then
	// only that limit bounds the connections of the functions that no queue feeds.
	Unreserved bool
	// Disposable deletes with the stack what is kept otherwise: the key, logs and
	// the database. For installations that hold nothing of worth.
	Disposable bool
}

// Database says how functions reach the control plane's PostgreSQL.
type Database struct {
	// URL is postgres://user@host:port/database?sslmode=verify-full, without a
	// password. Required.
	URL string
	// SecretARN is a Secrets Manager secret with username and password (also
	// host, port and dbname, which then win). Empty: IAM authentication as the
	// URL's user.
	SecretARN string
	// ResourceID of the cluster or instance, which the right to authenticate by
	// IAM names. Required without SecretARN.
	ResourceID string
	// Users that functions connect as with IAM authentication. Empty: postgres.
	User string
	// MaxConnections of the server. The functions are kept below 80 % of it.
	// Required.
	MaxConnections int
}

// Network is a VPC for the functions. Its subnets must reach the database and, by
// a dual-stack egress-only gateway or NAT, AWS and the ends of pipelines.
type Network struct {
	VPC awsec2.IVpc
	// Subnets of the functions. Required.
	Subnets *awsec2.SubnetSelection
	// SecurityGroup of the functions. Required.
	SecurityGroup awsec2.ISecurityGroup
	// DualStack makes the functions use IPv6 and AWS's dual-stack endpoints. To be
	// set where subnets have no way out over IPv4.
	DualStack bool
}

// Props are the properties of [NewTranship].
type Props struct {
	Base
	// Migration holds the key. Required.
	Migration *Migration
	// Authorization of requests. Empty: Keys.
	Authorization Authorization
	// OIDC is the JSON list of issuers whose tokens are let in (docs/security.md).
	// Empty: keys alone.
	OIDC string
	// Rate and Burst are the stage's throttle, in requests a second and at once.
	// 0: 100 and 200.
	Rate, Burst int
	// Concurrency bounds how many of each function run at once.
	Concurrency Concurrency
	// WorkerTimeout is the longest life of an attempt on Lambda, 15 s to 15 min.
	// 0: 15 min.
	WorkerTimeout time.Duration
	// WorkerMemory in MB; 1,769 is one vCPU. 0: 1769.
	WorkerMemory int
	// MaxRunning bounds the running slots of an organization. 0: 64.
	MaxRunning int
	// Lease is how long an attempt is believed to live without a heartbeat. 0: 60 s.
	Lease time.Duration
	// Fargate runs attempts as tasks where the pipeline or its size asks for it.
	// Nil: Lambda alone.
	Fargate *Fargate
	// Buckets are names of S3 buckets that pipelines read and write. The functions
	// that open connections get the rights for these, and for no others.
	Buckets []string
	// Webhooks is the JSON of what webhooks may call besides public addresses over
	// https: "allow", a list of networks, and "allow_http". Empty: nothing else.
	Webhooks string
	// SMTPURL and SMTPFrom send notifications by email. Functions' environments are
	// readable to whoever may describe them: no password in it.
	SMTPURL, SMTPFrom string
	// NoAPIAccount leaves out the account-wide role by which API Gateway writes
	// logs. To be set if the account has one in this Region: there is only one.
	NoAPIAccount bool
	// NoAlarms leaves out the alarms.
	NoAlarms bool
	// AlarmTopic is the ARN of an SNS topic that the alarms notify. Empty: alarms
	// only show.
	AlarmTopic string
	// Dashboard makes a CloudWatch dashboard ($3 a month beyond the first three).
	Dashboard bool
}

// Concurrency bounds how many environments of each function, and tasks, run at
// once. Each holds one connection to the database; workers and tasks hold two. The
// functions that a queue feeds are bounded by its mapping, the others by reserved
// concurrency.
type Concurrency struct {
	// API, Compile, Sweep and Inspect are reserved. 0: 40, 10, 4, 10.
	API, Compile, Sweep, Inspect int
	// Worker, Dispatch, Project and Deliver bound mappings, at least 2. 0: 100, 2,
	// 20, 10.
	Worker, Dispatch, Project, Deliver int
	// Tasks is how many Fargate tasks are reckoned with. 0: 64, or none without
	// Fargate.
	Tasks int
}

// Fargate says where tasks run. Either Image or TaskDefinition is given.
type Fargate struct {
	// Cluster is the cluster's name, in this account and Region. Required.
	Cluster string
	// Image is repository@sha256:digest; the task definition is made from it. It
	// belongs to this construct, not to the platform, because a task must not run
	// newer code than the database was migrated for.
	Image string
	// Repository is the ARN of the image's ECR repository. Required with Image.
	Repository string
	// TaskDefinition is the family of one that exists, with a container "worker".
	TaskDefinition string
	// Subnets, SecurityGroups: ids for the tasks' interfaces. Subnets is required.
	Subnets, SecurityGroups []string
	// PublicIP gives each task a public IPv4 address.
	PublicIP bool
	// CPU in units of 1/1024 vCPU and Memory in MB, a pair that Fargate knows.
	// 0: 2048 and 8192.
	CPU, Memory int
	// AttemptTime is the longest life of an attempt in a task. 0: 1 h.
	AttemptTime time.Duration
}
