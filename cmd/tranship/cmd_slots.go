package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/compose/ends"
)

func (a *app) slotsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "slots",
		Short: "List or drop what the source keeps for change streams",
		Long: `A source keeps its log for a change stream until the changes are stored at the
destination, also while nothing runs. A stream that nobody follows any more, such as
one of a pipeline that was given up, fills the source's disk: drop it.`,
		Args: usage(cobra.NoArgs),
	}
	c.AddCommand(a.slotsListCommand(), &cobra.Command{
		Use:   "drop NAME",
		Short: "Drop a stream's slot at the source; its pipeline then has to read its tables again",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStreamer(cmd.Context(), func(s engine.Streamer) error { return dropSlot(cmd.Context(), s, args[0]) })
		},
	})
	return c
}

func (a *app) slotsListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the slots of all pipelines at the source, with the log that they keep",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStreamer(cmd.Context(), func(s engine.Streamer) error {
				all, err := s.Streams(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(a.stdout, append([]engine.StreamInfo{}, all...))
				}
				t := newTable("SLOT", "PIPELINE", "ACTIVE", "KEEPS", "STATE")
				for _, x := range all {
					active := "no"
					if x.Active {
						active = "yes"
					}
					t.row(x.Name, orDash(x.Pipeline), active, size(x.Retained), orDash(x.State))
				}
				return t.print(a.stdout, "")
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func dropSlot(ctx context.Context, s engine.Streamer, name string) error {
	all, err := s.Streams(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(x engine.StreamInfo) bool { return x.Name == name })
	switch {
	case i < 0:
		return usageError("tranship slots list shows what there is", "the source has no slot %q of ours", name)
	case all[i].Active:
		return usageError("stop its run first", "slot %q is in use", name)
	}
	return s.DropStream(ctx, name)
}

// withStreamer opens the document's source for its change streams.
func (a *app) withStreamer(ctx context.Context, do func(engine.Streamer) error) error {
	doc, err := a.document()
	if err != nil {
		return err
	}
	src, err := a.ends(doc).OpenSource(ctx, engine.OpenOptions{})
	if err != nil {
		return beforeRun(err)
	}
	defer ends.Close(src)
	s, ok := src.(engine.Streamer)
	if !ok {
		return usageError("", "the source %s has no change streams", doc.Source.Connector)
	}
	return do(s)
}
