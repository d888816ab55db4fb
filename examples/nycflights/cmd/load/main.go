// Command load fills a PostgreSQL database with the nycflights tables.
//
//	load postgres://user:password@host/database
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/tranship-io/tranship/examples/nycflights"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: load URL")
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := nycflights.Load(ctx, os.Args[1])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	for _, t := range nycflights.Tables() {
		fmt.Printf("%-10s %8d rows\n", t.Name, t.Rows)
	}
}
