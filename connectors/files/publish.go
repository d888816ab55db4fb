package files

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// swapTries bounds how often a publish reads the manifest again after somebody
// else changed it; each loss means that another run got ahead.
const swapTries = 20

// Publish implements engine.SinkSession: it puts the run's registered files into
// the manifest by compare-and-swap, then sweeps what the manifest doesn't name.
// The manifest's list of runs says whether it happened before (P8).
func (s *session) Publish(ctx context.Context, p *engine.Publication) (*engine.Receipt, error) {
	t := p.Target
	d, err := detailOf(t)
	if err != nil {
		return nil, err
	}
	files, err := registered(p)
	if err != nil {
		return nil, err
	}
	for range swapTries {
		old, version, err := s.readManifest(ctx, d.Folder)
		if err != nil {
			return nil, err
		}
		if err := old.checkOwner(t); err != nil {
			return nil, err
		}
		if run, done := old.published(t.RunID); done {
			r := &engine.Receipt{Applied: run.Rows, ReadBack: run.Digest, Verified: t.Verify == engine.VerifyDigest, AlreadyDone: true}
			return r, s.sweep(ctx, t, d, old)
		}
		if err := old.checkFrom(p); err != nil {
			return nil, err
		}
		if err := s.present(ctx, t, d, files); err != nil {
			// A later run that published since sweeps the files of older ones:
			// then the manifest says so, and that is the answer.
			if _, now, readErr := s.readManifest(ctx, d.Folder); readErr == nil && now != version {
				continue
			}
			return nil, err
		}
		m := nextManifest(old, p, d, files)
		data, err := m.encode()
		if err != nil {
			return nil, err
		}
		// A manifest that we could not read again would be lost data.
		if _, err := ParseManifest(data); err != nil {
			return nil, engine.Bugf("%s: %w", t.Name, err)
		}
		err = s.store.swap(ctx, d.Folder+"/"+manifestName, data, version)
		if errors.Is(err, errConflict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		run := m.Runs[len(m.Runs)-1]
		r := &engine.Receipt{Applied: run.Rows, ReadBack: run.Digest, Verified: t.Verify == engine.VerifyDigest}
		for _, f := range files {
			r.Bytes += f.Bytes
		}
		return r, s.sweep(ctx, t, d, m)
	}
	return nil, engine.Retryablef("publish %s: other processes keep changing its manifest", t.Name)
}

// registered returns the run's files as the manifest lists them, checked
// against the totals (P7, invariant 7).
func registered(p *engine.Publication) ([]ManifestFile, error) {
	var rows int64
	claims := map[string]int64{}
	files := []ManifestFile{}
	seen := map[string]bool{}
	for _, a := range p.Artifacts {
		if len(p.Splits) > 0 && !slices.Contains(p.Splits, a.Split) {
			continue
		}
		if seen[a.Name] {
			continue
		}
		seen[a.Name] = true
		place := fmt.Sprintf("%s epoch %d", a.Split, a.Epoch)
		if claim, ok := claims[place]; ok && claim != a.Claim {
			return nil, engine.Bugf("publish %s: %s is registered under claims %d and %d", p.Target.Name, place, claim, a.Claim)
		}
		claims[place] = a.Claim
		files = append(files, ManifestFile{
			Name: a.Name, RunID: p.Target.RunID, Rows: a.Rows, Bytes: a.Bytes, Digest: a.Digest, Checksum: a.Checksum,
		})
		rows += a.Rows
	}
	if rows != p.Totals.Applied {
		return nil, &engine.MismatchError{
			Resource: p.Target.Resource, What: "rows",
			Source: fmt.Sprint(p.Totals.Applied), Destination: fmt.Sprint(rows),
		}
	}
	slices.SortFunc(files, func(a, b ManifestFile) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

// present checks that every file is there with its size: a manifest never
// names what was lost (P7).
func (s *session) present(ctx context.Context, t *engine.Target, d *detail, files []ManifestFile) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, f := range files {
		g.Go(func() error {
			n, err := s.store.size(ctx, d.Folder+"/"+f.Name)
			if errors.Is(err, errNotFound) {
				return fmt.Errorf("publish %s: file %s is gone: %w", t.Name, f.Name, engine.ErrStagingLost)
			}
			if err != nil {
				return err
			}
			if n != f.Bytes {
				return fmt.Errorf("publish %s: file %s has %d bytes, written were %d: %w", t.Name, f.Name, n, f.Bytes, engine.ErrStagingLost)
			}
			return nil
		})
	}
	return g.Wait()
}

// nextManifest returns the manifest after the publish.
func nextManifest(old *Manifest, p *engine.Publication, d *detail, files []ManifestFile) *Manifest {
	t := p.Target
	m := &Manifest{
		Version:      manifestVersion,
		Installation: t.Route.Installation, Pipeline: t.Route.Pipeline,
		Source: t.Route.Source, Sink: t.Route.Sink, Resource: t.Resource,
		RunID: t.RunID, Ordinal: t.Ordinal, Claim: p.Claim,
		Format: d.Format, Compression: d.Compression,
		Schema: t.Schema, Columns: t.Columns,
		Cursor: p.Cursor, Seen: p.Seen,
		Files: []ManifestFile{},
	}
	if old != nil {
		m.Runs = old.Runs
		if t.Write == engine.WriteAppend {
			m.Files = append(m.Files, old.Files...)
		}
	}
	run := ManifestRun{RunID: t.RunID, Ordinal: t.Ordinal, Write: t.Write, Files: len(files), StartedAt: p.ActivityAt.UTC()}
	for _, f := range files {
		run.Rows += f.Rows
		run.Digest.Add(f.Digest)
	}
	m.Files = append(m.Files, files...)
	m.Runs = append(slices.Clone(m.Runs), run)
	if extra := len(m.Runs) - keptRuns; extra > 0 {
		m.Runs = m.Runs[extra:]
	}
	m.Digest = integrity.Digest{}
	for _, f := range m.Files {
		m.Rows += f.Rows
		m.Bytes += f.Bytes
		m.Digest.Add(f.Digest)
	}
	return m
}

// sweep removes data files that the manifest doesn't name: superseded files,
// and what this run and older ones left unregistered. Folders of younger runs
// are left alone: run ids are UUIDv7, whose text sorts by time.
func (s *session) sweep(ctx context.Context, t *engine.Target, d *detail, m *Manifest) error {
	named := make(map[string]bool, len(m.Files))
	for _, f := range m.Files {
		named[f.Name] = true
	}
	return s.clear(ctx, d, func(key string) bool {
		run, ours := runOf(key)
		return !ours || run > t.RunID || named[key]
	})
}

// clear removes what keep says no to; its keys are relative to the folder.
func (s *session) clear(ctx context.Context, d *detail, keep func(key string) bool) error {
	var doomed []string
	err := s.store.list(ctx, d.Folder, func(key string) error {
		if rel := strings.TrimPrefix(key, d.Folder+"/"); !keep(rel) {
			doomed = append(doomed, key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(doomed) > 0 {
		if err := s.store.remove(ctx, doomed); err != nil {
			return err
		}
	}
	return s.store.tidy(ctx, d.Folder, keep)
}

// Abort implements engine.SinkSession: it removes the run's files unless they
// are published.
func (s *session) Abort(ctx context.Context, t *engine.Target) error {
	d, err := detailOf(t)
	if err != nil {
		return err
	}
	m, _, err := s.readManifest(ctx, d.Folder)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	if m != nil {
		for _, f := range m.Files {
			named[f.Name] = true
		}
	}
	return s.clear(ctx, d, func(key string) bool {
		run, ours := runOf(key)
		return !ours || run != t.RunID || named[key]
	})
}

// Adopt implements engine.Adopter: it reads the manifests below the path that
// belong to the route (P1).
func (s *session) Adopt(ctx context.Context, r engine.Route) ([]engine.Adoption, error) {
	var found []engine.Adoption
	err := s.store.list(ctx, "", func(key string) error {
		folder, ok := strings.CutSuffix(key, "/"+manifestName)
		if !ok || strings.Contains(folder, "/") {
			return nil
		}
		m, _, err := s.readManifest(ctx, folder)
		if err != nil || m == nil {
			return err
		}
		if m.Pipeline != r.Pipeline || m.Source != r.Source || m.Sink != r.Sink {
			return nil
		}
		i := slices.IndexFunc(found, func(a engine.Adoption) bool { return a.Installation == m.Installation })
		if i < 0 {
			i = len(found)
			found = append(found, engine.Adoption{Installation: m.Installation})
		}
		a := &found[i]
		if m.Ordinal > a.Ordinal {
			a.Ordinal, a.RunID = m.Ordinal, m.RunID
		}
		a.Resources = append(a.Resources, engine.AdoptedResource{
			Resource: m.Resource, Cursor: m.Cursor, Seen: m.Seen,
			RunID: m.RunID, Ordinal: m.Ordinal, Published: true,
		})
		return nil
	})
	return found, err
}
