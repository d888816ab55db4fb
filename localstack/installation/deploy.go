package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/tranship-io/tranship/localstack/rig"
)

// deploy does what make deploy does in an account: the stack migrate, its function,
// the stack app. The database is the rig's own, known by a secret.
func (i *Installation) deploy(ctx context.Context) error {
	if err := i.prepareCDK(ctx); err != nil {
		return err
	}
	if err := i.writeSettings(ctx); err != nil {
		return err
	}
	if err := i.cdk(ctx, "bootstrap", "aws://"+rig.Account+"/"+rig.Region); err != nil {
		return err
	}
	if err := i.deployStack(ctx, Name+"-migrate"); err != nil {
		return err
	}
	if err := i.migrate(ctx); err != nil {
		return err
	}
	if err := i.deployStack(ctx, Name+"-app"); err != nil {
		return err
	}
	address, err := i.apiAddress()
	if err != nil {
		return err
	}
	i.env["TRANSHIP_URL"] = address
	i.env["TRANSHIP_RIG_TEMPLATES"] = i.path("cdk.out")
	return nil
}

const leaseSeconds = 20

// Redeploy deploys what has changed since: zips, templates, migrations.
func (i *Installation) Redeploy(ctx context.Context) error {
	if err := i.deployStack(ctx, Name+"-migrate"); err != nil {
		return err
	}
	if err := i.migrate(ctx); err != nil {
		return err
	}
	return i.deployStack(ctx, Name+"-app")
}

// Destroy removes the stacks.
func (i *Installation) Destroy(ctx context.Context) error {
	return i.cdk(ctx, "destroy", Name+"-app", Name+"-migrate", "--force")
}

func (i *Installation) infra() string { return filepath.Join(i.config.Root, "infra") }

// prepareCDK makes what is there once per checkout: the cdk command and the app's
// binary, whose first compilation takes minutes.
func (i *Installation) prepareCDK(ctx context.Context) error {
	if _, err := os.Stat(i.cdkPath()); errors.Is(err, os.ErrNotExist) {
		if err := i.command(ctx, i.infra(), nil, "npm", "ci", "--no-audit", "--no-fund"); err != nil {
			return err
		}
	}
	return i.command(ctx, i.infra(), nil, "go", "build", "-o", i.appPath(), "./cmd/tranship-cdk")
}

func (i *Installation) cdkPath() string {
	return filepath.Join(i.infra(), "node_modules", ".bin", "cdk")
}

func (i *Installation) appPath() string { return filepath.Join(i.config.Root, "bin", "tranship-cdk") }

// writeSettings stores the database's login as a secret and writes the settings of
// the installation (infra/stacks.Settings).
func (i *Installation) writeSettings(ctx context.Context) error {
	secret, err := json.Marshal(map[string]string{"username": login, "password": i.password})
	if err != nil {
		return err
	}
	stored, err := secretsmanager.NewFromConfig(i.core.AWS()).CreateSecret(ctx, &secretsmanager.CreateSecretInput{
		Name: aws.String(Name + "-database"), SecretString: aws.String(string(secret)),
	})
	if err != nil {
		return fmt.Errorf("store the database's login: %w", err)
	}
	database, err := i.databaseURL()
	if err != nil {
		return err
	}
	settings, err := json.MarshalIndent(map[string]any{
		"name":         Name,
		"architecture": architecture(),
		"functions":    filepath.Join(i.functions(), "functions"),
		"database":     map[string]any{"url": database, "secretARN": stored.ARN, "maxConnections": maxConnections},
		"tasks": map[string]any{
			"cluster": taskClusterName, "taskDefinition": taskFamily, "subnets": []string{"subnet-rig"}, "securityGroups": []string{"sg-rig"},
		},
		"webhooks":   map[string]any{"allow": []string{"127.0.0.0/8"}, "allow_http": true},
		"buckets":    []string{Bucket},
		"dashboard":  false,
		"disposable": true,
		// Tests kill workers; what they held goes on after this.
		"leaseSeconds": leaseSeconds,
		"logLevel":     "debug",
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(i.settings(), settings, 0o644)
}

// Bucket is the one that pipelines of the rig may write to; the core enforces no
// rights, but the templates name it.
const Bucket = Name + "-rig"

func (i *Installation) settings() string { return i.path("settings.json") }

// cdk runs the command with the installation's settings.
func (i *Installation) cdk(ctx context.Context, args ...string) error {
	all := append([]string{"--app", i.appPath(), "--output", i.path("cdk.out"), "-c", "settings=" + i.settings()}, args...)
	return i.command(ctx, i.infra(), i.cdkEnv(), i.cdkPath(), all...)
}

func (i *Installation) deployStack(ctx context.Context, stack string) error {
	return i.cdk(ctx, "deploy", stack, "--exclusively", "--require-approval", "never", "--outputs-file", i.outputs(stack))
}

func (i *Installation) outputs(stack string) string { return i.path(stack + ".outputs.json") }

func (i *Installation) migrate(ctx context.Context) error {
	out, err := lambda.NewFromConfig(i.core.AWS()).Invoke(ctx, &lambda.InvokeInput{
		FunctionName: aws.String(Name + "-migrate"), Payload: []byte(`{}`),
	})
	if err != nil {
		return fmt.Errorf("invoke migrate: %w", err)
	}
	if out.FunctionError != nil {
		return fmt.Errorf("migrate failed: %s", out.Payload)
	}
	i.config.Log.Info("migrated", "answer", string(out.Payload))
	return nil
}

// apiAddress turns the stack's output, whose host name resolves only in a container
// of LocalStack's, into an address on 127.0.0.1.
func (i *Installation) apiAddress() (string, error) {
	text, err := os.ReadFile(i.outputs(Name + "-app"))
	if err != nil {
		return "", err
	}
	var stacks map[string]map[string]string
	if err := json.Unmarshal(text, &stacks); err != nil {
		return "", err
	}
	for name, value := range stacks[Name+"-app"] {
		u, err := url.Parse(value)
		if err != nil || !strings.Contains(u.Host, ".execute-api.") {
			continue
		}
		id, _, _ := strings.Cut(u.Host, ".")
		stage := strings.Trim(u.Path, "/")
		i.config.Log.Debug("API", "output", name, "value", value)
		return i.core.Endpoint() + "/_aws/execute-api/" + id + "/" + stage, nil
	}
	return "", fmt.Errorf("no output of %s-app is the address of an API: %s", Name, text)
}

// fetchKey takes the first key, which migrate made, into a file for its owner only.
func (i *Installation) fetchKey(ctx context.Context) error {
	out, err := ssm.NewFromConfig(i.core.AWS()).GetParameter(ctx, &ssm.GetParameterInput{
		Name: aws.String("/" + Name + "/first-key"), WithDecryption: aws.Bool(true),
	})
	if err != nil {
		return err
	}
	i.env["TRANSHIP_KEY_FILE"] = i.path("key")
	return os.WriteFile(i.path("key"), []byte(aws.ToString(out.Parameter.Value)+"\n"), 0o600)
}
