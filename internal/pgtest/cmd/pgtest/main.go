// Command pgtest starts a throw-away PostgreSQL server.
//
//	pgtest run [flags] -- COMMAND…   start a server, run COMMAND with
//	                                 TRANSHIP_TEST_PG_URL set, stop the server
//	pgtest serve [flags]             start a server, print its URL, wait for an
//	                                 interrupt
//	pgtest fetch [flags]             only put the binaries into the cache
//
// The exit code of run is the command's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/tranship-io/tranship/internal/pgtest"
)

const usage = "usage: pgtest run|serve|fetch [-version N] [-data DIR] [-port N] [-set name=value]… [-- COMMAND…]"

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New(usage)
	}
	flags := flag.NewFlagSet("pgtest "+args[0], flag.ContinueOnError)
	config := pgtest.Config{Params: map[string]string{}}
	flags.StringVar(&config.Version, "version", "", "PostgreSQL version, such as 16")
	flags.StringVar(&config.DataDir, "data", "", "data folder to keep (default: a temporary one)")
	flags.IntVar(&config.Port, "port", 0, "port on 127.0.0.1 (default: a free one)")
	flags.Func("set", "server setting name=value, may repeat", func(v string) error {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return errors.New("want name=value")
		}
		config.Params[name] = value
		return nil
	})
	if err := flags.Parse(args[1:]); err != nil {
		return 2, nil // the flag package has printed the error
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	switch args[0] {
	case "fetch":
		dir, err := pgtest.Fetch(ctx, config.Version)
		if err != nil {
			return 1, err
		}
		fmt.Println(dir)
		return 0, nil
	case "serve":
		return serve(ctx, config)
	case "run":
		if flags.NArg() == 0 {
			return 2, errors.New(usage)
		}
		return runCommand(ctx, config, flags.Args())
	}
	return 2, errors.New(usage)
}

func serve(ctx context.Context, config pgtest.Config) (code int, err error) {
	s, err := pgtest.Start(ctx, config)
	if err != nil {
		return 1, err
	}
	fmt.Println(s.URL(""))
	<-ctx.Done()
	if err := s.Stop(); err != nil {
		return 1, err
	}
	return 0, nil
}

func runCommand(ctx context.Context, config pgtest.Config, command []string) (code int, err error) {
	s, err := pgtest.Start(ctx, config)
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := s.Stop(); stopErr != nil {
			code, err = max(code, 1), errors.Join(err, stopErr)
		}
	}()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(),
		pgtest.EnvURL+"="+s.URL(""),
		pgtest.EnvVersion+"="+s.Version(),
	)
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
