// Command rig runs AWS on this machine, see package rig, and Tranship in it, see
// package installation. It is called in the checkout's folder.
//
//	rig run -- COMMAND…   start a core, run COMMAND with TRANSHIP_TEST_AWS set, stop
//	                      the core; the exit code is the command's
//	rig core [-port N]    start a core in the background, write .localstack/core.env
//	rig up [-port N]      start a whole installation in the background, write
//	                      .localstack/env
//	rig down              stop what runs in the background
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/tranship-io/tranship/localstack/rig"
)

const usage = "usage: rig run -- COMMAND… | rig core [-port N] | rig up [-port N] | rig down"

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rig:", err)
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New(usage)
	}
	flags := flag.NewFlagSet("rig "+args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	port := flags.Int("port", 0, "port of the core on 127.0.0.1 (default: a free one)")
	err := flags.Parse(args[1:])
	if err != nil {
		return 2, err
	}
	switch args[0] {
	case "run":
		if flags.NArg() == 0 {
			return 2, errors.New(usage)
		}
		return runCommand(ctx, *port, flags.Args())
	case "core":
		err = startCore(ctx, *port)
	case "up":
		err = startAll(ctx, *port)
	case "serve-core":
		err = serveCore(ctx, *port)
	case "serve-all":
		err = serveAll(ctx, *port)
	case "down":
		err = down(ctx)
	default:
		return 2, errors.New(usage)
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

func runCommand(ctx context.Context, port int, command []string) (code int, err error) {
	core, err := rig.Start(ctx, rig.Config{Port: port})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := core.Stop(); stopErr != nil {
			code, err = max(code, 1), errors.Join(err, stopErr)
		}
	}()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), rig.EnvEndpoint+"="+core.Endpoint())
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if code := exit.ExitCode(); code > 0 {
			return code, nil
		}
		return 1, fmt.Errorf("%s: %w", command[0], err)
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
