package transhipcdk_test

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"github.com/tranship-io/tranship/infra/transhipcdk"
)

// An installation in stacks of one's own, whose worker may do more than the buckets
// allow.
func Example() {
	app := awscdk.NewApp(nil)
	platform := transhipcdk.NewPlatform(awscdk.NewStack(app, jsii.String("base"), nil), "platform", &transhipcdk.PlatformProps{
		Network: transhipcdk.Private, MinACU: 0.5, NoFargate: true,
	})
	base := transhipcdk.Base{Functions: "dist/functions", Database: platform.Database, Network: platform.Network}
	migration := transhipcdk.NewMigration(awscdk.NewStack(app, jsii.String("migrate"), nil), "migration", &base)
	installation := transhipcdk.NewTranship(awscdk.NewStack(app, jsii.String("app"), nil), "tranship", &transhipcdk.Props{
		Base: base, Migration: migration, Buckets: []string{"lake"},
	})
	installation.Functions["worker"].AddToRolePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions:   jsii.Strings("dynamodb:Scan"),
		Resources: jsii.Strings("arn:aws:dynamodb:eu-west-1:111122223333:table/orders"),
	}))
	app.Synth(nil)
}
