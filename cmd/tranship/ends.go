package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/compose/ends"
	"github.com/tranship-io/tranship/pipeline"
	"github.com/tranship-io/tranship/store/sqlite"
)

// ends are the two ends of a document.
func (a *app) ends(doc *pipeline.Document) ends.Ends {
	return ends.Ends{Catalog: a.catalog, Doc: doc}
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
