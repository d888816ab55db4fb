package transhipcdk

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// Migration is what is deployed and invoked before the rest of an installation:
// its function migrates the database and makes, once, the signing key and the
// first API key as SecureString parameters.
type Migration struct {
	// Key wraps the data keys of stored secrets. It is kept when the stack is
	// deleted, unless the installation is disposable: without it the secrets in
	// the database are lost.
	Key awskms.IKey
	// Function is NAME-migrate.
	Function awslambda.IFunction
}

// NewMigration makes the key and the function migrate.
func NewMigration(scope constructs.Construct, id string, base *Base) *Migration {
	props := *base
	props.setDefaults()
	if err := props.Validate(); err != nil {
		panic(err.Error())
	}
	m := &Migration{}
	b := newBuilder(constructs.NewConstruct(scope, jsii.String(id)), props)

	m.Key = awskms.NewKey(b.scope, jsii.String("key"), &awskms.KeyProps{
		Alias:             jsii.String("alias/" + props.Name),
		Description:       jsii.String("Wraps the data keys of secrets that " + props.Name + " stores"),
		EnableKeyRotation: jsii.Bool(true),
		RemovalPolicy:     b.removal(),
	})
	signing, _ := b.names.parameter("signing")
	first, _ := b.names.parameter("first-key")
	m.Function = b.function(functionSpec{
		name:        "migrate",
		description: "Migrates the database; makes the signing key and the first API key",
		timeout:     15 * time.Minute,
		memory:      256,
		reserved:    1,
		database:    true,
		env: map[string]string{
			"TRANSHIP_SIGNING_PARAMETER":   signing,
			"TRANSHIP_FIRST_KEY_PARAMETER": first,
			"TRANSHIP_ORGANIZATION":        props.Organization,
		},
		grants:  []awsiam.PolicyStatement{b.names.makeParameters()},
		retries: jsii.Number(0),
	})

	output(b.scope, "MigrateFunction", *m.Function.FunctionName(), "Invoked before the app is deployed: make deploy does")
	output(b.scope, "FirstKeyParameter", first, "Read the first key with: aws ssm get-parameter --with-decryption --name "+first)
	return m
}
