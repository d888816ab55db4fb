// Command tranship-release does what a deployment does beside the stacks:
//
//	tranship-release push -outputs FILE -stack NAME-platform -image dist/image
//	tranship-release migrate -outputs FILE -stack NAME-migrate
//
// Outputs are what cdk deploy --outputs-file has written. Both may be repeated.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tranship-release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say push or migrate")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	outputsFile := flags.String("outputs", "", "file that cdk deploy --outputs-file has written")
	stack := flags.String("stack", "", "name of the stack")
	layout := flags.String("image", "", "push: folder of the image's OCI layout")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	out, err := readOutputs(*outputsFile, *stack)
	if err != nil {
		return err
	}
	aws, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return fmt.Errorf("read AWS's configuration: %w", err)
	}
	switch args[0] {
	case "push":
		if out["Repository"] == "" {
			fmt.Println("no repository: the platform has no Fargate")
			return nil
		}
		return push(ctx, aws, out["Repository"], *layout)
	case "migrate":
		if out["MigrateFunction"] == "" {
			return fmt.Errorf("stack %s has no output MigrateFunction", *stack)
		}
		return migrate(ctx, aws, out["MigrateFunction"])
	}
	return fmt.Errorf("%q: say push or migrate", args[0])
}

// readOutputs returns a stack's outputs.
func readOutputs(file, stack string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the stacks' outputs: %w", err)
	}
	var all map[string]map[string]string
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read the stacks' outputs %s: %w", file, err)
	}
	out, ok := all[stack]
	if !ok {
		return nil, fmt.Errorf("%s has no stack %q", file, stack)
	}
	return out, nil
}
