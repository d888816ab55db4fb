package installation

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/tranship-io/tranship/localstack/rig"
)

// functions is the folder of the zips, apart from the one for a real account: these
// are built for this machine.
func (i *Installation) functions() string { return filepath.Join(i.config.Root, "dist", "rig") }

// buildFunctions builds the zips, and takes the worker out of its zip: it is the
// task's program too.
func (i *Installation) buildFunctions(ctx context.Context) error {
	if err := i.command(ctx, i.config.Root, nil, "make", "--no-print-directory", "functions", "ARCH="+architecture(), "DIST="+i.functions()); err != nil {
		return err
	}
	archive, err := zip.OpenReader(filepath.Join(i.functions(), "functions", "worker.zip"))
	if err != nil {
		return fmt.Errorf("open the worker: %w", err)
	}
	defer archive.Close()
	in, err := archive.Open("bootstrap")
	if err != nil {
		return fmt.Errorf("open the worker: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(i.path("worker"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// command runs a program and shows its output only when it fails.
func (i *Installation) command(ctx context.Context, dir string, env map[string]string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return nil
}

// taskEnvironment is the worker function's, which the task definition of infra
// gives the task likewise.
func (i *Installation) taskEnvironment(ctx context.Context) (map[string]string, error) {
	f, err := lambda.NewFromConfig(i.core.AWS()).GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{
		FunctionName: aws.String(Name + "-worker"),
	})
	if err != nil {
		return nil, err
	}
	env := i.core.Environ()
	maps.Copy(env, f.Environment.Variables)
	env["AWS_ENDPOINT_URL_SQS"] = i.env["TRANSHIP_RIG_SQS"]
	env["AWS_ENDPOINT_URL_S3"] = i.env["TRANSHIP_RIG_S3"]
	env["TRANSHIP_TASK_MEMORY"] = taskMemory
	env["TRANSHIP_ECS_CLUSTER"] = taskCluster
	return env, nil
}

// putTaskEvent puts a task state change to the bus, where the rule NAME-tasks waits.
func (i *Installation) putTaskEvent(ctx context.Context, detail json.RawMessage) error {
	out, err := eventbridge.NewFromConfig(i.core.AWS()).PutEvents(ctx, &eventbridge.PutEventsInput{Entries: []types.PutEventsRequestEntry{{
		Source: aws.String("aws.ecs"), DetailType: aws.String("ECS Task State Change"), Detail: aws.String(string(detail)),
	}}})
	if err != nil {
		return err
	}
	if out.FailedEntryCount > 0 {
		return errors.New(aws.ToString(out.Entries[0].ErrorMessage))
	}
	return nil
}

// cdkEnv is what the cdk command needs to find this AWS.
func (i *Installation) cdkEnv() map[string]string {
	env := i.core.Environ()
	maps.Copy(env, map[string]string{
		"CDK_DEFAULT_ACCOUNT": rig.Account, "CDK_DEFAULT_REGION": rig.Region, "CDK_DISABLE_CLI_TELEMETRY": "1",
		"JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
	})
	return env
}
