package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/api/client"
	"github.com/tranship-io/tranship/engine"
)

func (a *app) pipelinesCommand() *cobra.Command {
	var f listFlags
	c := &cobra.Command{
		Use: "pipelines", Short: "List pipelines of a server; pause, resume, export, delete them", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listPipelines(cmd.Context(), f) },
	}
	f.add(c)
	list := &cobra.Command{Use: "list", Short: "List pipelines", Args: noArgs, RunE: c.RunE}
	list.Flags().AddFlagSet(c.Flags())
	c.AddCommand(
		list,
		a.pipelineCommand("pause NAME", "Begin no more runs of a pipeline", func(ctx context.Context, c *client.Client, id uuid.UUID) error {
			_, err := answer(c.PausePipeline(ctx, id, &client.PausePipelineParams{IdempotencyKey: idempotency()}))
			return err
		}),
		a.pipelineCommand("resume NAME", "Begin runs of a pipeline again", func(ctx context.Context, c *client.Client, id uuid.UUID) error {
			_, err := answer(c.ResumePipeline(ctx, id, &client.ResumePipelineParams{IdempotencyKey: idempotency()}))
			return err
		}),
		a.pipelineCommand("delete NAME", "Delete a pipeline; its history stays", func(ctx context.Context, c *client.Client, id uuid.UUID) error {
			_, err := answer(c.DeletePipeline(ctx, id, &client.DeletePipelineParams{}))
			return err
		}),
		a.pipelineCommand("export NAME", "Write a pipeline as the file that run takes", func(ctx context.Context, c *client.Client, id uuid.UUID) error {
			body, err := answer(c.ExportPipeline(ctx, id, &client.ExportPipelineParams{}))
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(body)
			return err
		}),
		a.pipelineCommand("show NAME", "Show a pipeline as JSON", func(ctx context.Context, c *client.Client, id uuid.UUID) error {
			body, err := answer(c.GetPipeline(ctx, id))
			if err != nil {
				return err
			}
			return a.writeAnswer(body)
		}),
	)
	return c
}

func (a *app) listPipelines(ctx context.Context, f listFlags) error {
	c, err := a.remote()
	if err != nil {
		return err
	}
	limit, after := f.page()
	list, body, err := fetch[client.PipelineList](c.ListPipelines(ctx, &client.ListPipelinesParams{Limit: limit, After: after}))
	if err != nil {
		return err
	}
	if f.json {
		return a.writeAnswer(body)
	}
	t := newTable("PIPELINE", "VERSION", "ROUTES", "STATE", "UPDATED")
	for _, p := range list.Items {
		state := "active"
		if p.Paused {
			state = "paused"
		}
		t.row(p.Name, fmt.Sprint(p.CurrentVersion), fmt.Sprint(len(p.Routes)), state, whenAt(p.UpdatedAt))
	}
	if err := t.print(a.stdout, ""); err != nil {
		return err
	}
	return a.more(list.Next)
}

// pipelineCommand is a command about one pipeline, by its name or id.
func (a *app) pipelineCommand(use, short string, do func(ctx context.Context, c *client.Client, id uuid.UUID) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.remote()
			if err != nil {
				return err
			}
			id, err := pipelineID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return do(cmd.Context(), c, id)
		},
	}
}

func pipelineID(ctx context.Context, c *client.Client, name string) (uuid.UUID, error) {
	if id, err := uuid.Parse(name); err == nil {
		return id, nil
	}
	list, _, err := fetch[client.PipelineList](c.ListPipelines(ctx, &client.ListPipelinesParams{Name: &name}))
	if err != nil {
		return uuid.Nil, err
	}
	if len(list.Items) == 0 {
		return uuid.Nil, usageError("tranship pipelines lists them", "the server has no pipeline %q", name)
	}
	return list.Items[0].Id, nil
}

func (a *app) connectionsCommand() *cobra.Command {
	var f listFlags
	c := &cobra.Command{
		Use: "connections", Short: "List connections of a server; test, show, delete them", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listConnections(cmd.Context(), f) },
	}
	f.add(c)
	list := &cobra.Command{Use: "list", Short: "List connections", Args: noArgs, RunE: c.RunE}
	list.Flags().AddFlagSet(c.Flags())
	c.AddCommand(
		list,
		a.connectionCommand("show NAME", "Show a connection as JSON; secrets are references", func(ctx context.Context, c *client.Client, id uuid.UUID) error {
			body, err := answer(c.GetConnection(ctx, id))
			if err != nil {
				return err
			}
			return a.writeAnswer(body)
		}),
		a.connectionCommand("delete NAME", "Delete a connection that no pipeline uses", func(ctx context.Context, c *client.Client, id uuid.UUID) error {
			_, err := answer(c.DeleteConnection(ctx, id, &client.DeleteConnectionParams{}))
			return err
		}),
		a.connectionCommand("test NAME", "Connect from the server and check rights", a.testConnection),
	)
	return c
}

func (a *app) listConnections(ctx context.Context, f listFlags) error {
	c, err := a.remote()
	if err != nil {
		return err
	}
	limit, after := f.page()
	list, body, err := fetch[client.ConnectionList](c.ListConnections(ctx, &client.ListConnectionsParams{Limit: limit, After: after}))
	if err != nil {
		return err
	}
	if f.json {
		return a.writeAnswer(body)
	}
	t := newTable("CONNECTION", "CONNECTOR", "ROLE", "VERSION", "UPDATED")
	for _, x := range list.Items {
		t.row(x.Name, x.Connector, string(x.Role), fmt.Sprint(x.Version), whenAt(x.UpdatedAt))
	}
	if err := t.print(a.stdout, ""); err != nil {
		return err
	}
	return a.more(list.Next)
}

// connectionCommand is a command about one connection, by its name or id.
func (a *app) connectionCommand(use, short string, do func(ctx context.Context, c *client.Client, id uuid.UUID) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.remote()
			if err != nil {
				return err
			}
			id, err := uuid.Parse(args[0])
			if err == nil {
				return do(cmd.Context(), c, id)
			}
			list, _, err := fetch[client.ConnectionList](c.ListConnections(cmd.Context(), &client.ListConnectionsParams{Name: &args[0]}))
			if err != nil {
				return err
			}
			if len(list.Items) == 0 {
				return usageError("tranship connections lists them", "the server has no connection %q", args[0])
			}
			return do(cmd.Context(), c, list.Items[0].Id)
		},
	}
}

// testConnection starts an inspection and waits for its result.
func (a *app) testConnection(ctx context.Context, c *client.Client, id uuid.UUID) error {
	x, _, err := fetch[client.Inspection](c.StartInspection(ctx, &client.StartInspectionParams{IdempotencyKey: idempotency()},
		client.InspectionInput{Kind: client.InspectionKindTest, Connection: id}))
	if err != nil {
		return err
	}
	for x.State == client.InspectionStateRequested || x.State == client.InspectionStateRunning {
		if err := pauseFor(ctx, inspectionEvery); err != nil {
			return err
		}
		x, _, err = fetch[client.Inspection](c.GetInspection(ctx, x.Id))
		if err != nil {
			return err
		}
	}
	if x.State != client.InspectionStateSucceeded {
		return &exitError{exitFailed, problemError(client.Problem{Title: "The test " + string(x.State), Detail: x.Error, Hint: x.Hint, Status: http.StatusConflict})}
	}
	return a.printTest(x)
}

// printTest shows what the test of a connection found.
func (a *app) printTest(x client.Inspection) error {
	var result struct {
		OK       bool `json:"ok"`
		Findings []struct {
			Level   string `json:"level"`
			Subject string `json:"subject"`
			Message string `json:"message"`
			Hint    string `json:"hint"`
		} `json:"findings"`
	}
	if err := json.Unmarshal(x.Result, &result); err != nil {
		return fmt.Errorf("read the test's result: %w", err)
	}
	for _, f := range result.Findings {
		line := fmt.Sprintf("%-7s %s: %s", f.Level, f.Subject, f.Message)
		if f.Hint != "" {
			line += " (" + f.Hint + ")"
		}
		if _, err := fmt.Fprintln(a.stdout, line); err != nil {
			return err
		}
	}
	if !result.OK {
		return &exitError{exitFailed, engine.Permanentf("", "the connection does not work")}
	}
	_, err := fmt.Fprintln(a.stdout, "the connection works")
	return err
}
