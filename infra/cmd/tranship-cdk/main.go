// Command tranship-cdk is the CDK app: it synthesizes the stacks of an
// installation. The cdk command runs it, in the checkout's folder infra:
//
//	npx cdk --app ../bin/tranship-cdk -c settings=FILE -c profile=warm deploy NAME-app
//
// Both contexts may be left out: the defaults are those of [stacks.Settings].
package main

import (
	"fmt"
	"os"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"github.com/tranship-io/tranship/infra/stacks"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tranship-cdk:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	settings := &stacks.Settings{}
	if file := text(app, "settings"); file != "" {
		if settings, err = stacks.Load(file); err != nil {
			return err
		}
	}
	if profile := text(app, "profile"); profile != "" {
		settings.Profile = stacks.Profile(profile)
	}
	if _, err := stacks.New(app, settings, ".."); err != nil {
		return err
	}
	app.Synth(nil)
	return nil
}

// text is the value of a context, or empty.
func text(app awscdk.App, key string) string {
	value, _ := app.Node().TryGetContext(jsii.String(key)).(string)
	return value
}
