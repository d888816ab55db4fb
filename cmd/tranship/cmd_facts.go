package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/api/client"
)

type factsFlags struct {
	follow, json bool
	after        int64
	// untilPaused ends following at a pause, too.
	untilPaused bool
}

func (a *app) factsCommand() *cobra.Command {
	var f factsFlags
	c := &cobra.Command{
		Use: "facts RUN", Short: "Show what happened in a run of a server", Args: usage(cobra.ExactArgs(1)),
		Long: `Show the facts of a run, in order; with --follow until the run has ended and all of
them are told. RUN is a run's id, the beginning or end of it, or latest. With
--json one fact a line.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.remote()
			if err != nil {
				return err
			}
			run, err := remoteRun(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return a.followFacts(cmd.Context(), c, run.Id, f)
		},
	}
	c.Flags().BoolVar(&f.follow, "follow", false, "go on until the run has ended")
	c.Flags().BoolVar(&f.json, "json", false, "write one JSON object a line")
	c.Flags().Int64Var(&f.after, "after", 0, "only facts with a greater number")
	return c
}

// followFacts writes a run's facts.
func (a *app) followFacts(ctx context.Context, c *client.Client, run uuid.UUID, f factsFlags) error {
	after, limit, wait := f.after, 500, "0s"
	if f.follow {
		wait = "20s"
	}
	for {
		state := client.RunState("")
		if f.untilPaused {
			now, err := getRun(ctx, c, run)
			if err != nil {
				return err
			}
			if state = now.State; state == client.RunStatePaused {
				wait = "0s"
			}
		}
		resp, err := c.ListFacts(ctx, run, &client.ListFactsParams{After: &after, Wait: &wait, Limit: &limit})
		list, _, err := fetch[client.FactList](resp, err)
		if err != nil {
			return err
		}
		for _, fact := range list.Items {
			if err := a.writeFact(fact, f.json); err != nil {
				return err
			}
			after = fact.Number
		}
		switch {
		case list.Next == nil:
			return nil
		case len(list.Items) > 0:
		case !f.follow, state == client.RunStatePaused:
			return nil
		default:
			if err := pauseFor(ctx, restOf(resp)); err != nil {
				return err
			}
		}
	}
}

func (a *app) writeFact(f client.Fact, asJSON bool) error {
	if asJSON {
		line, err := json.Marshal(f)
		if err != nil {
			return fmt.Errorf("write fact: %w", err)
		}
		_, err = a.stdout.Write(append(line, '\n'))
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "%6d  %s  %-20s %s\n", f.Number, f.At.Local().Format("15:04:05.000"), f.Type, f.Data)
	return err
}
