package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/api/client"
)

// inspectionEvery is how often the result of an inspection is looked for.
const inspectionEvery = 500 * time.Millisecond

func (a *app) schedulesCommand() *cobra.Command {
	var f listFlags
	var pipeline string
	c := &cobra.Command{
		Use: "schedules", Short: "List schedules of a server; create, pause, resume, delete them", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listSchedules(cmd.Context(), f, pipeline) },
	}
	f.add(c)
	c.Flags().StringVar(&pipeline, "pipeline", "", "only schedules of this pipeline")
	list := &cobra.Command{Use: "list", Short: "List schedules", Args: noArgs, RunE: c.RunE}
	list.Flags().AddFlagSet(c.Flags())
	c.AddCommand(
		list, a.scheduleCreate(),
		a.scheduleCommand("pause SCHEDULE", "Pause a schedule", func(ctx context.Context, c *client.Client, id uuid.UUID) error {
			_, err := answer(c.PauseSchedule(ctx, id, &client.PauseScheduleParams{IdempotencyKey: idempotency()}))
			return err
		}),
		a.scheduleCommand("resume SCHEDULE", "Resume a schedule", func(ctx context.Context, c *client.Client, id uuid.UUID) error {
			_, err := answer(c.ResumeSchedule(ctx, id, &client.ResumeScheduleParams{IdempotencyKey: idempotency()}))
			return err
		}),
		a.scheduleCommand("delete SCHEDULE", "Delete a schedule", func(ctx context.Context, c *client.Client, id uuid.UUID) error {
			_, err := answer(c.DeleteSchedule(ctx, id, &client.DeleteScheduleParams{}))
			return err
		}),
		a.scheduleCommand("next SCHEDULE", "List when a schedule fires next", func(ctx context.Context, c *client.Client, id uuid.UUID) error {
			list, _, err := fetch[client.NextOccurrenceList](c.ListNextOccurrences(ctx, id, &client.ListNextOccurrencesParams{}))
			if err != nil {
				return err
			}
			for _, o := range list.Items {
				if _, err := fmt.Fprintf(a.stdout, "%s  %s\n", o.FiresAt.UTC().Format(time.RFC3339), o.Local); err != nil {
					return err
				}
			}
			return nil
		}),
	)
	return c
}

func (a *app) listSchedules(ctx context.Context, f listFlags, pipeline string) error {
	c, err := a.remote()
	if err != nil {
		return err
	}
	limit, after := f.page()
	list, body, err := fetch[client.ScheduleList](c.ListSchedules(ctx, &client.ListSchedulesParams{Pipeline: given(pipeline), Limit: limit, After: after}))
	if err != nil {
		return err
	}
	if f.json {
		return a.writeAnswer(body)
	}
	t := newTable("SCHEDULE", "NAME", "PIPELINE", "WHEN", "STATE", "NEXT")
	for _, s := range list.Items {
		t.row(s.Id.String(), orDash(s.Name), s.Pipeline, timingOf(s), string(s.State), whenAt(s.NextAt))
	}
	if err := t.print(a.stdout, ""); err != nil {
		return err
	}
	return a.more(list.Next)
}

func timingOf(s client.Schedule) string {
	switch {
	case s.Cron != "":
		return s.Cron + " " + s.TimeZone
	case s.Interval != "":
		return "every " + s.Interval
	}
	return "at " + s.At.UTC().Format(time.RFC3339)
}

// scheduleFlags are the flags of schedules create.
type scheduleFlags struct {
	name, cron, every, at, zone, overlap, catchUp, jitter string
	json                                                  bool
}

func (a *app) scheduleCreate() *cobra.Command {
	var f scheduleFlags
	c := &cobra.Command{
		Use: "create PIPELINE", Short: "Create a schedule", Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			input := client.ScheduleInput{
				Pipeline: args[0], Name: f.name, Cron: f.cron, Interval: f.every, TimeZone: f.zone,
				Overlap: client.OverlapPolicy(f.overlap), CatchUp: client.CatchUpPolicy(f.catchUp), Jitter: f.jitter,
			}
			if f.at != "" {
				at, err := time.Parse(time.RFC3339, f.at)
				if err != nil {
					return usageError("such as 2027-01-31T06:00:00Z", "--at %s is not a time", f.at)
				}
				input.At = at
			}
			c, err := a.remote()
			if err != nil {
				return err
			}
			s, body, err := fetch[client.Schedule](c.CreateSchedule(cmd.Context(), &client.CreateScheduleParams{IdempotencyKey: idempotency()}, input))
			if err != nil {
				return err
			}
			if f.json {
				return a.writeAnswer(body)
			}
			_, err = fmt.Fprintf(a.stdout, "schedule %s fires next at %s\n", s.Id, whenAt(s.NextAt))
			return err
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "", "name of the schedule")
	fl.StringVar(&f.cron, "cron", "", "five fields, or a descriptor such as @daily")
	fl.StringVar(&f.every, "every", "", "an interval, such as 15m")
	fl.StringVar(&f.at, "at", "", "once, at this time (RFC 3339)")
	fl.StringVar(&f.zone, "zone", "", "time zone of --cron, such as Europe/Berlin; UTC without it")
	fl.StringVar(&f.overlap, "overlap", "", "skip, allow or queue")
	fl.StringVar(&f.catchUp, "catch-up", "", "none, one or all")
	fl.StringVar(&f.jitter, "jitter", "", "window within which an occurrence is moved, such as 30s")
	fl.BoolVar(&f.json, "json", false, "write the schedule as JSON")
	return c
}

// scheduleCommand is a command about one schedule, by its id or name.
func (a *app) scheduleCommand(use, short string, do func(ctx context.Context, c *client.Client, id uuid.UUID) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.remote()
			if err != nil {
				return err
			}
			id, err := scheduleID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return do(cmd.Context(), c, id)
		},
	}
}

func scheduleID(ctx context.Context, c *client.Client, name string) (uuid.UUID, error) {
	if id, err := uuid.Parse(name); err == nil {
		return id, nil
	}
	limit := 500
	params := &client.ListSchedulesParams{Limit: &limit}
	for {
		list, _, err := fetch[client.ScheduleList](c.ListSchedules(ctx, params))
		if err != nil {
			return uuid.Nil, err
		}
		for _, s := range list.Items {
			if s.Name == name {
				return s.Id, nil
			}
		}
		if list.Next == nil {
			return uuid.Nil, usageError("tranship schedules lists them", "the server has no schedule %q", name)
		}
		params.After = list.Next
	}
}
