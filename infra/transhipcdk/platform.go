package transhipcdk

import (
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecr"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// NetworkChoice is where database and functions are.
type NetworkChoice string

// Networks. docs/cost.md has what each costs.
const (
	// Public: functions are in no VPC, and Aurora is reached over its internet
	// access gateway (express configuration), by IAM authentication and TLS.
	Public NetworkChoice = "public"
	// Private: a VPC of the installation's own. Functions leave it over IPv6
	// (egress-only gateway), which costs nothing by the hour; what only speaks IPv4
	// is reached from Fargate in a public subnet, or with NatGateway.
	Private NetworkChoice = "private"
	// Existing: a VPC that is there.
	Existing NetworkChoice = "existing"
)

// PlatformProps are the properties of [NewPlatform].
type PlatformProps struct {
	// Name of the installation. Empty: "tranship".
	Name string
	// Network choice. Empty: Public.
	Network NetworkChoice
	// NatGateway gives a private network a way out over IPv4 ($33 a month and
	// $0.045 a GB).
	NatGateway bool
	// VPC is the existing network. Required with Existing, and only then.
	VPC *ExistingVPC
	// MinACU is the database's least capacity: 0 lets it pause after 5 minutes
	// without a connection, 0.5 and more keeps it warm.
	MinACU float64
	// MaxACU bounds its capacity and sets its max_connections. 0: 4.
	MaxACU float64
	// EngineVersion of Aurora PostgreSQL; with Public AWS chooses. Empty: "17.5".
	EngineVersion string
	// BackupDays is how long automated backups are kept, 1 to 35. 0: 7.
	BackupDays int
	// NoFargate leaves out cluster and repository.
	NoFargate bool
	// Disposable deletes the database with the stack, without a last snapshot and
	// without protection.
	Disposable bool
}

// ExistingVPC names a VPC and the subnets for database, functions and tasks.
type ExistingVPC struct {
	ID string `json:"id"`
	// AvailabilityZones of Subnets, one each, in at least two zones.
	AvailabilityZones []string `json:"availabilityZones"`
	Subnets           []string `json:"subnets"`
	// DualStack: the subnets have a way out over IPv6 alone.
	DualStack bool `json:"dualStack"`
}

// Platform is network, database, and what Fargate needs.
type Platform struct {
	// Network for the functions; nil: outside of any VPC.
	Network *Network
	// Database for [Base].
	Database Database
	// Repository of the task's image; nil without Fargate.
	Repository awsecr.IRepository

	scope constructs.Construct
	props PlatformProps
	names names
	vpc   awsec2.IVpc
	tasks awsec2.ISecurityGroup
}

func (p *PlatformProps) setDefaults() {
	setDefault(&p.Name, "tranship")
	setDefault(&p.Network, Public)
	setDefault(&p.MaxACU, 4)
	setDefault(&p.EngineVersion, "17.5")
	setDefault(&p.BackupDays, 7)
}

// Validate returns why the properties cannot work.
func (p PlatformProps) Validate() error {
	p.setDefaults()
	switch {
	case !validName.MatchString(p.Name):
		return fmt.Errorf("name %q: use lower-case letters, digits and hyphens, 2 to 24 bytes", p.Name)
	case p.Network != Public && p.Network != Private && p.Network != Existing:
		return fmt.Errorf("network %q: use public, private or existing", p.Network)
	case p.NatGateway && p.Network != Private:
		return fmt.Errorf("network %q takes no NAT gateway: only private does", p.Network)
	case (p.VPC != nil) != (p.Network == Existing):
		return fmt.Errorf("network %q: a VPC is given with existing, and only then", p.Network)
	case p.VPC != nil && (p.VPC.ID == "" || len(p.VPC.Subnets) < 2 || len(p.VPC.Subnets) != len(p.VPC.AvailabilityZones)):
		return fmt.Errorf("network existing: give the VPC's id and at least two subnets with their availability zones")
	case p.MinACU < 0 || p.MaxACU < 1 || p.MaxACU > 128 || p.MinACU > p.MaxACU:
		return fmt.Errorf("capacity from %g to %g ACU: use 0 to 128, at least 1 at most", p.MinACU, p.MaxACU)
	case p.BackupDays < 1 || p.BackupDays > 35:
		return fmt.Errorf("backups of %d days: Aurora keeps 1 to 35", p.BackupDays)
	}
	return nil
}

// NewPlatform makes what an installation stands on.
func NewPlatform(scope constructs.Construct, id string, props *PlatformProps) *Platform {
	p := *props
	p.setDefaults()
	if err := p.Validate(); err != nil {
		panic(err.Error())
	}
	c := constructs.NewConstruct(scope, jsii.String(id))
	out := &Platform{scope: c, props: p, names: names{stack: awscdk.Stack_Of(c), name: p.Name}}
	out.newNetwork()
	out.newDatabase()
	if !p.NoFargate {
		out.newFargate()
	}
	return out
}

// newFargate makes cluster and repository. Both cost nothing while no task runs,
// but for the images' storage.
func (p *Platform) newFargate() {
	cluster := awsecs.NewCfnCluster(p.scope, jsii.String("cluster"), &awsecs.CfnClusterProps{
		ClusterName:     jsii.String(p.names.name),
		ClusterSettings: []any{&awsecs.CfnCluster_ClusterSettingsProperty{Name: jsii.String("containerInsights"), Value: jsii.String("disabled")}},
	})
	suppress(cluster, "AwsSolutions-ECS4", "Container Insights is billed by metric and task; attempts report their own metrics, as on Lambda.")
	p.Repository = awsecr.NewRepository(p.scope, jsii.String("repository"), &awsecr.RepositoryProps{
		RepositoryName:     jsii.String(p.names.of("worker")),
		ImageTagMutability: awsecr.TagMutability_IMMUTABLE,
		ImageScanOnPush:    jsii.Bool(true),
		// A rollback of a few releases finds its image.
		LifecycleRules: &[]*awsecr.LifecycleRule{{MaxImageCount: jsii.Number(20), Description: jsii.String("keep the last 20 images")}},
		// Images are built again from the source of their release.
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
		EmptyOnDelete: jsii.Bool(true),
	})
	output(p.scope, "Repository", *p.Repository.RepositoryUri(), "Where make deploy pushes the task's image")
}

// Fargate returns where tasks run, with the image of a digest (sha256:…); nil if
// the platform has no Fargate.
func (p *Platform) Fargate(digest string) *Fargate {
	if p.props.NoFargate {
		return nil
	}
	subnets := p.vpc.SelectSubnets(p.taskSubnets())
	f := &Fargate{
		Cluster:        p.names.name,
		Repository:     *p.Repository.RepositoryArn(),
		SecurityGroups: []string{*p.tasks.SecurityGroupId()},
		PublicIP:       p.publicTasks(),
	}
	if digest = strings.TrimSpace(digest); digest != "" {
		f.Image = *p.Repository.RepositoryUri() + "@" + digest
	}
	for _, id := range *subnets.SubnetIds {
		f.Subnets = append(f.Subnets, *id)
	}
	return f
}
