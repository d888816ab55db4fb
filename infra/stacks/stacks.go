package stacks

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"github.com/tranship-io/tranship/infra/transhipcdk"
)

// Stacks of an installation.
type Stacks struct {
	// Platform is nil with a database of one's own.
	Platform     awscdk.Stack
	Migrate, App awscdk.Stack
}

// New adds the stacks to an app, and the rules of cdk-nag (AwsSolutions) that each
// synthesis keeps to. root is the checkout's folder, where the build has
// left zips and digest. The stacks name no account and no Region: they are deployed
// where the credentials are.
func New(app awscdk.App, settings *Settings, root string) (*Stacks, error) {
	s, err := settings.resolve(root)
	if err != nil {
		return nil, err
	}
	// What a stack takes from another one cannot be taken away from under it, and
	// emulators know no other way.
	app.Node().SetContext(jsii.String("@aws-cdk/core:defaultCrossStackReferences"), "strong")
	out := &Stacks{}
	var (
		database transhipcdk.Database
		network  *transhipcdk.Network
		fargate  *transhipcdk.Fargate
	)
	if t := s.Tasks; t != nil && *s.Fargate {
		fargate = &transhipcdk.Fargate{
			Cluster: t.Cluster, TaskDefinition: t.TaskDefinition, Subnets: t.Subnets, SecurityGroups: t.SecurityGroups, PublicIP: t.PublicIP,
		}
	}
	if !s.platformless() {
		digest := ""
		if *s.Fargate && s.Tasks == nil {
			if digest, err = s.digest(); err != nil {
				return nil, err
			}
		}
		props := s.platform()
		if err := props.Validate(); err != nil {
			return nil, err
		}
		out.Platform = newStack(app, s.Name+"-platform", "Network and database of "+s.Name)
		platform := transhipcdk.NewPlatform(out.Platform, "platform", props)
		database, network = platform.Database, platform.Network
		if fargate == nil {
			fargate = platform.Fargate(digest)
		}
	}
	if d := s.Database; d != nil {
		database = transhipcdk.Database(*d)
	}

	base := s.base(database, network)
	if err := s.app(base, nil, fargate).Validate(); err != nil {
		return nil, err
	}
	out.Migrate = newStack(app, s.Name+"-migrate", "Key and migrations of "+s.Name)
	migration := transhipcdk.NewMigration(out.Migrate, "migration", &base)
	out.App = newStack(app, s.Name+"-app", "API, functions, queues and schedules of "+s.Name)
	transhipcdk.NewTranship(out.App, "tranship", s.app(base, migration, fargate))
	out.App.AddStackDependency(out.Migrate, jsii.String("the database is migrated first"))
	awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(&cdknag.NagPackProps{Verbose: jsii.Bool(true)}), nil)
	return out, nil
}

func newStack(app awscdk.App, name, description string) awscdk.Stack {
	return awscdk.NewStack(app, jsii.String(name), &awscdk.StackProps{
		StackName: jsii.String(name), Description: jsii.String(description),
		Tags: &map[string]*string{"application": jsii.String("tranship")},
	})
}
