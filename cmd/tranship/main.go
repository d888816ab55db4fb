// Command tranship replicates data between systems and proves that it arrived.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "dev"

func main() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		lookup: os.LookupEnv, signals: signals, exit: os.Exit, version: version,
	}
	os.Exit(a.main(context.Background(), os.Args[1:]))
}
