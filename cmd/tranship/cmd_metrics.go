package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/api/client"
)

func (a *app) metricsCommand() *cobra.Command {
	c := &cobra.Command{Use: "metrics", Short: "Look after a server's history and metrics", Args: usage(cobra.NoArgs)}
	c.AddCommand(a.metricsRebuild())
	return c
}

func (a *app) metricsRebuild() *cobra.Command {
	var wait, asJSON bool
	c := &cobra.Command{
		Use: "rebuild", Short: "Make history, metrics, health and costs anew from the facts of all runs", Args: noArgs,
		Long: `Make history, metrics, health and costs anew from the facts of all runs. They are
emptied, and fill up again meanwhile; no event is raised again. It is refused once
retention has dropped facts. With --wait the command ends when nothing is behind.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			c, err := a.remote()
			if err != nil {
				return err
			}
			r, body, err := fetch[client.Rebuild](c.StartRebuild(ctx, &client.StartRebuildParams{IdempotencyKey: idempotency()}))
			if err != nil {
				return err
			}
			for left := r.WaitingRuns; wait && left > 0; {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return ctx.Err()
				}
				p, _, err := fetch[client.RebuildProgress](c.GetRebuild(ctx))
				if err != nil {
					return err
				}
				left = p.WaitingRuns
			}
			switch {
			case asJSON:
				return a.writeAnswer(body)
			case wait:
				_, err = fmt.Fprintf(a.stdout, "the facts of %d runs were folded anew\n", r.WaitingRuns)
			default:
				_, err = fmt.Fprintf(a.stdout, "the facts of %d runs are folded anew\n", r.WaitingRuns)
			}
			return err
		},
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait until nothing is behind")
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}
