package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranship-io/tranship/localstack/installation"
	"github.com/tranship-io/tranship/localstack/rig"
)

// startCore starts the core alone in the background.
func startCore(ctx context.Context, port int) error {
	if err := background(ctx, coreEnv, "serve-core", fmt.Sprint("-port=", port)); err != nil {
		return err
	}
	fmt.Println("AWS runs in the background. Its variables: . " + coreEnv)
	return nil
}

// startAll starts a whole installation in the background.
func startAll(ctx context.Context, port int) error {
	if err := background(ctx, fullEnv, "serve-all", fmt.Sprint("-port=", port)); err != nil {
		return err
	}
	env, err := os.ReadFile(fullEnv)
	if err != nil {
		return err
	}
	fmt.Println("Tranship runs on emulated AWS in the background.")
	for line := range strings.Lines(string(env)) {
		// What else stands there has passwords.
		if strings.HasPrefix(line, "export TRANSHIP_URL=") || strings.HasPrefix(line, "export TRANSHIP_KEY_FILE=") {
			fmt.Print("  ", strings.TrimPrefix(line, "export "))
		}
	}
	fmt.Println("Use it with:\n  . " + fullEnv + "; tranship context add rig --url $TRANSHIP_URL --key-file $TRANSHIP_KEY_FILE\n" +
		"make localstack-down ends it.")
	return nil
}

// serveCore is the background process of the core alone.
func serveCore(ctx context.Context, port int) error {
	dir, err := filepath.Abs(filepath.Join(stateDir, "core"))
	if err != nil {
		return err
	}
	core, err := rig.Start(ctx, rig.Config{Port: port, Dir: dir})
	if err != nil {
		return err
	}
	env := core.Environ()
	env[rig.EnvEndpoint] = core.Endpoint()
	return serve(ctx, coreEnv, env, core.Done(), core.Stop)
}

// serveAll is the background process of a whole installation.
func serveAll(ctx context.Context, port int) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	all, err := installation.Start(ctx, installation.Config{
		Root: root, Dir: filepath.Join(root, stateDir, "installation"), Port: port,
		Log: slog.New(slog.NewTextHandler(os.Stdout, nil)),
	})
	if err != nil {
		return err
	}
	return serve(ctx, fullEnv, all.Env(), all.Done(), all.Stop)
}

// serve writes the environment file and waits for the end.
func serve(ctx context.Context, file string, env map[string]string, done <-chan struct{}, stop func() error) error {
	if err := writeEnv(file, env); err != nil {
		return errors.Join(err, stop())
	}
	var err error
	select {
	case <-ctx.Done():
	case <-done:
		err = errors.New("the core ended by itself; see core.log below " + stateDir)
	}
	return errors.Join(err, stop(), os.Remove(file))
}
