package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/pipeline"
	"github.com/tranship-io/tranship/store/sqlite"
)

// openSource opens the document's source.
func (a *app) openSource(ctx context.Context, doc *pipeline.Document, opt engine.OpenOptions) (engine.SourceSession, error) {
	source, ok := a.catalog.Source(doc.Source.Connector)
	if !ok {
		return nil, engine.Bugf("the source connector %q passed the check but is not there", doc.Source.Connector)
	}
	return source.Open(ctx, doc.Source.Resolved(), a.openOptions(doc, opt))
}

// openSink opens the document's sink.
func (a *app) openSink(ctx context.Context, doc *pipeline.Document, opt engine.OpenOptions) (engine.SinkSession, error) {
	sink, ok := a.catalog.Sink(doc.Sink.Connector)
	if !ok {
		return nil, engine.Bugf("the sink connector %q passed the check but is not there", doc.Sink.Connector)
	}
	return sink.Open(ctx, doc.Sink.Resolved(), a.openOptions(doc, opt))
}

func (a *app) openOptions(doc *pipeline.Document, opt engine.OpenOptions) engine.OpenOptions {
	opt.Pipeline = doc.Name
	if d := doc.Settings.ConnectTimeout; d != 0 {
		opt.GiveUp = time.Duration(d)
	}
	return opt
}

type closer interface{ Close(context.Context) error }

// closeEnd ends a session; the server cleans up what a failed close leaves.
func closeEnd(c closer) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// selection is what a document chooses of its source.
type selection struct {
	found    []engine.Resource
	selected []pipeline.Selected
}

// choose discovers what the document names.
func choose(ctx context.Context, src engine.SourceSession, doc *pipeline.Document) (*selection, error) {
	found, err := src.Discover(ctx, doc.Patterns())
	if err != nil {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	selected, err := doc.Expand(found)
	if err != nil {
		// Names that are near, for the hint, are among all resources only; and a
		// source may read a pattern more narrowly than the document does.
		if found, err = src.Discover(ctx, nil); err != nil {
			return nil, fmt.Errorf("discover resources: %w", err)
		}
		if selected, err = doc.Expand(found); err != nil {
			return nil, err
		}
	}
	if len(selected) == 0 {
		return nil, engine.Permanentf("exclude less", "the pipeline's patterns exclude everything that they match")
	}
	return &selection{found: found, selected: selected}, nil
}

// requests translates the document's entries for the engine.
func (a *app) requests(doc *pipeline.Document, selected []pipeline.Selected) []runner.ResourceRequest {
	var sinkSpec *engine.Spec
	if sink, ok := a.catalog.Sink(doc.Sink.Connector); ok {
		spec := sink.Spec()
		sinkSpec = &spec
	}
	out := make([]runner.ResourceRequest, len(selected))
	for i, s := range selected {
		read, write := doc.Modes(s.Entry, sinkSpec)
		lookback := s.Entry.Lookback
		if lookback == 0 && read == engine.ReadIncremental {
			lookback = doc.Defaults.Lookback
		}
		q := runner.ResourceRequest{
			Selection: engine.Selection{
				Resource: s.Resource.Name, Where: s.Entry.Where, Key: s.Entry.Key,
				Cursor: s.Entry.Cursor, Lookback: time.Duration(lookback),
			},
			Read: read, Write: write, Target: s.Entry.Target,
			Policies: doc.EnginePolicies(s.Entry), Consistency: doc.Settings.Consistency,
			Options: optionsOf(s.Entry),
		}
		if c := s.Entry.Columns; c != nil {
			q.Include, q.Exclude = c.Include, c.Exclude
		}
		out[i] = q
	}
	return out
}

func optionsOf(r pipeline.Resource) json.RawMessage {
	if len(r.Options) == 0 || string(r.Options) == "null" {
		return nil
	}
	return r.Options
}

// settings translates the document's settings for the engine.
func settings(s pipeline.Settings) runner.Settings {
	return runner.Settings{
		Slots: s.Slots, Memory: int64(s.Memory), AttemptTime: time.Duration(s.AttemptTime),
		Verify: s.Verify, Schema: s.SchemaPolicy, Lineage: s.Lineage,
		EpochBytes: int64(s.EpochSize), SplitBytes: int64(s.SplitSize),
		GiveUp: time.Duration(s.Retry.GiveUp), MinTries: s.Retry.Attempts,
	}
}

// openState opens the state file, making it if it is not there.
func (a *app) openState(ctx context.Context) (*sqlite.Store, error) {
	s, err := sqlite.Open(ctx, a.statePath)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return s, nil
}

// readState opens the state file only if it is there; else it returns nil.
func (a *app) readState(ctx context.Context) (*sqlite.Store, error) {
	if _, err := os.Stat(a.statePath); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return a.openState(ctx)
}

// needState opens a state file that must be there.
func (a *app) needState(ctx context.Context) (*sqlite.Store, error) {
	s, err := a.readState(ctx)
	if err == nil && s == nil {
		return nil, usageError("a first tranship run makes it; name another one with --state", "there is no state file %s", a.statePath)
	}
	return s, err
}

// beforeRun gives an error that came before any run was begun its exit code:
// what only a change of configuration mends is wrong configuration.
func beforeRun(err error) error {
	var e *exitError
	if err == nil || errors.As(err, &e) {
		return err
	}
	if engine.ClassOf(err) == engine.Permanent || errors.Is(err, engine.ErrLocked) {
		return &exitError{exitUsage, err}
	}
	return &exitError{exitFailed, err}
}
