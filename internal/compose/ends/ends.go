package ends

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/pipeline"
)

// Ends are the source and the sink of a checked document.
type Ends struct {
	Catalog *catalog.Catalog
	Doc     *pipeline.Document
	// Name is what the engine remembers the route by; empty: the document's name.
	Name string
}

func (e Ends) name() string { return cmp.Or(e.Name, e.Doc.Name) }

// Secrets are the texts that nothing may tell. The name of a connector as a password
// is no secret that could be kept: every message names the connector.
func (e Ends) Secrets() []string {
	return slices.DeleteFunc(slices.Clone(e.Doc.Secrets()), func(s string) bool {
		return s == e.Doc.Source.Connector || s == e.Doc.Sink.Connector
	})
}

// OpenSource opens the document's source.
func (e Ends) OpenSource(ctx context.Context, opt engine.OpenOptions) (engine.SourceSession, error) {
	source, ok := e.Catalog.Source(e.Doc.Source.Connector)
	if !ok {
		return nil, engine.Bugf("the source connector %q passed the check but is not there", e.Doc.Source.Connector)
	}
	opt = e.options(opt)
	return again(ctx, opt.GiveUp, func() (engine.SourceSession, error) { return source.Open(ctx, e.Doc.Source.Resolved(), opt) })
}

// OpenSink opens the document's sink.
func (e Ends) OpenSink(ctx context.Context, opt engine.OpenOptions) (engine.SinkSession, error) {
	sink, ok := e.Catalog.Sink(e.Doc.Sink.Connector)
	if !ok {
		return nil, engine.Bugf("the sink connector %q passed the check but is not there", e.Doc.Sink.Connector)
	}
	opt = e.options(opt)
	return again(ctx, opt.GiveUp, func() (engine.SinkSession, error) { return sink.Open(ctx, e.Doc.Sink.Resolved(), opt) })
}

func (e Ends) options(opt engine.OpenOptions) engine.OpenOptions {
	opt.Pipeline = e.name()
	if d := e.Doc.Settings.ConnectTimeout; d != 0 {
		opt.GiveUp = time.Duration(d)
	}
	return opt
}

// Closer is a session.
type Closer interface{ Close(context.Context) error }

// Close ends a session; the server cleans up what a failed close leaves.
func Close(c Closer) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// Choose discovers what the document names and returns what it stands for.
func (e Ends) Choose(ctx context.Context, src engine.SourceSession) ([]pipeline.Selected, error) {
	found, err := e.discover(ctx, src, e.Doc.Patterns())
	if err != nil {
		return nil, err
	}
	selected, err := e.Doc.Expand(found)
	if err != nil {
		// Names that are near, for the hint, are among all resources only; and a
		// source may read a pattern more narrowly than the document does.
		if found, err = e.discover(ctx, src, nil); err != nil {
			return nil, err
		}
		if selected, err = e.Doc.Expand(found); err != nil {
			return nil, err
		}
	}
	if len(selected) == 0 {
		return nil, engine.Permanentf("exclude less", "the pipeline's patterns exclude everything that they match")
	}
	return selected, nil
}

// discover looks again when the source's connection is lost under it.
func (e Ends) discover(ctx context.Context, src engine.SourceSession, patterns []string) ([]engine.Resource, error) {
	found, err := again(ctx, time.Duration(e.Doc.Settings.Retry.GiveUp), func() ([]engine.Resource, error) { return src.Discover(ctx, patterns) })
	if err != nil {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	return found, nil
}

// again does what failed because a connection was lost, until giveUp is over; 0
// means a minute. What has waited for that long itself is not done again.
func again[T any](ctx context.Context, giveUp time.Duration, do func() (T, error)) (T, error) {
	return backoff.Retry(ctx, func() (T, error) {
		v, err := do()
		if err != nil && engine.ClassOf(err) != engine.Retryable {
			err = backoff.Permanent(err)
		}
		return v, err
	}, backoff.WithMaxElapsedTime(cmp.Or(giveUp, time.Minute)))
}

// Requests translates the document's entries for the engine.
func (e Ends) Requests(selected []pipeline.Selected) []runner.ResourceRequest {
	var spec *engine.Spec
	if sink, ok := e.Catalog.Sink(e.Doc.Sink.Connector); ok {
		s := sink.Spec()
		spec = &s
	}
	out := make([]runner.ResourceRequest, len(selected))
	for i, s := range selected {
		read, write := e.Doc.Modes(s.Entry, spec)
		lookback := s.Entry.Lookback
		if lookback == 0 && read == engine.ReadIncremental {
			lookback = e.Doc.Defaults.Lookback
		}
		q := runner.ResourceRequest{
			Selection: engine.Selection{
				Resource: s.Resource.Name, Where: s.Entry.Where, Key: s.Entry.Key,
				Cursor: s.Entry.Cursor, Lookback: time.Duration(lookback), Initial: s.Entry.Initial,
			},
			Read: read, Write: write, Target: s.Entry.Target,
			Policies: e.Doc.EnginePolicies(s.Entry), Consistency: e.Doc.Settings.Consistency,
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

// Settings translates the document's settings for the engine.
func Settings(s pipeline.Settings) runner.Settings {
	return runner.Settings{
		Slots: s.Slots, Memory: int64(s.Memory), AttemptTime: time.Duration(s.AttemptTime),
		Verify: s.Verify, Schema: s.SchemaPolicy, Lineage: s.Lineage,
		EpochBytes: int64(s.EpochSize), SplitBytes: int64(s.SplitSize),
		OnLost: s.Changes.OnLost,
		GiveUp: time.Duration(s.Retry.GiveUp), MinTries: s.Retry.Attempts,
	}
}

// Options looks at the source, expands the document's patterns, and returns what
// the engine needs of the document: everything but State and what belongs to the
// process.
func (e Ends) Options(ctx context.Context) (runner.Options, error) {
	opt, _, err := e.Selected(ctx)
	return opt, err
}

// Selected is Options with what the document chose of the source, in the order of
// the options' resources.
func (e Ends) Selected(ctx context.Context) (runner.Options, []pipeline.Selected, error) {
	src, err := e.OpenSource(ctx, engine.OpenOptions{})
	if err != nil {
		return runner.Options{}, nil, fmt.Errorf("open source: %w", err)
	}
	defer Close(src)
	selected, err := e.Choose(ctx, src)
	if err != nil {
		return runner.Options{}, nil, err
	}
	return runner.Options{
		OpenSource: e.OpenSource, OpenSink: e.OpenSink,
		Pipeline: e.name(), Version: e.Doc.Hash(), Resources: e.Requests(selected), Settings: Settings(e.Doc.Settings),
	}, selected, nil
}
