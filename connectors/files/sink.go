package files

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// session is an open files sink. It has no state of its own between calls: all
// that must be remembered is in targets, artifacts and manifests.
type session struct {
	cfg   Config
	store storage
	slots int
}

var (
	_ engine.SinkSession = (*session)(nil)
	_ engine.Adopter     = (*session)(nil)
)

// detail is the sink's own part of a target, frozen with the plan.
type detail struct {
	Folder      string `json:"folder"`
	Format      string `json:"format"`
	Compression string `json:"compression"`
	Roll        int64  `json:"roll"`
	RowGroup    int64  `json:"row_group"`
}

func detailOf(t *engine.Target) (*detail, error) {
	var d detail
	if err := json.Unmarshal(t.Detail, &d); err != nil {
		return nil, engine.Bugf("%s: read the target's detail: %w", t.Name, err)
	}
	if d.Folder == "" {
		return nil, engine.Bugf("%s: the target names no folder", t.Name)
	}
	return &d, nil
}

// Identity implements engine.SinkSession.
func (s *session) Identity() string { return s.store.identity() }

// Plan implements engine.SinkSession.
func (s *session) Plan(ctx context.Context, req engine.TargetRequest) (*engine.Target, error) {
	res := req.Plan.Resource
	if req.Write != engine.WriteReplace && req.Write != engine.WriteAppend {
		return nil, engine.Permanentf("choose write: replace or write: append", "%s: files can't be written with mode %s", res.Name, req.Write)
	}
	path := res.Path
	if req.Target != "" {
		path = parsePath(req.Target)
	} else if len(path) == 0 {
		path = parsePath(res.Name)
	}
	d := &detail{
		Folder: folderOf(path), Format: s.cfg.Format, Compression: s.cfg.Compression,
		Roll: int64(s.cfg.Roll), RowGroup: int64(s.cfg.RowGroup),
	}
	if err := d.override(res.Name, req.Options); err != nil {
		return nil, err
	}
	if req.Target == "" {
		if err := checkFolders(res.Name, d.Folder, req.Others); err != nil {
			return nil, err
		}
	}
	if usesSetAside(req.Policies) && !strings.HasPrefix(req.Policies.SetAside, "file:") {
		return nil, engine.Permanentf(`name it with set_aside: "file:<path>"`,
			"%s: rows are to be set aside, and the place %q is no file", res.Name, req.Policies.SetAside)
	}
	t := &engine.Target{
		Route: req.Route, RunID: req.RunID, Ordinal: req.Ordinal, Generation: req.Generation,
		Resource: res.Name, Schema: res.Schema, Name: s.store.identity() + "/" + d.Folder,
		Read: req.Read, Write: req.Write, Staged: true,
		Technique: "new files, then one change of manifest.json",
		Verify:    req.Verify, Policies: req.Policies, SchemaRule: req.Schema, Lineage: req.Lineage,
		Window:     req.Plan.Window,
		EpochBytes: int64(s.cfg.Epoch), BatchBytes: batchBytes,
		RememberWindow: req.Read == engine.ReadIncremental,
		Options:        req.Options,
	}
	cols, err := planColumns(t, d)
	if err != nil {
		return nil, err
	}
	for _, c := range cols {
		t.Columns = append(t.Columns, engine.TargetColumn{Source: c.source, Name: c.field.Name, Type: c.storedType(d.Format)})
	}
	if t.Detail, err = json.Marshal(d); err != nil {
		return nil, engine.Bugf("%s: encode the target's detail: %w", t.Name, err)
	}
	m, _, err := s.readManifest(ctx, d.Folder)
	if err != nil {
		return nil, err
	}
	if t.Write == engine.WriteAppend && m != nil {
		if err := checkAppend(m, t, d); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func usesSetAside(p engine.Policies) bool {
	if p.Default == engine.PolicySetAside {
		return true
	}
	for _, v := range p.Columns {
		if v == engine.PolicySetAside {
			return true
		}
	}
	return false
}

// override applies a resource's own options.
func (d *detail) override(resource string, options json.RawMessage) error {
	if len(options) == 0 {
		return nil
	}
	var o ResourceOptions
	dec := json.NewDecoder(bytes.NewReader(options))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return engine.Permanentf("options of a resource are compression, roll and row_group", "%s: read its options: %w", resource, err)
	}
	if o.Compression != "" {
		d.Compression = o.Compression
	}
	if o.Roll > 0 {
		d.Roll = int64(o.Roll)
	}
	if o.RowGroup > 0 {
		d.RowGroup = int64(o.RowGroup)
	}
	return checkCompression(d.Format, d.Compression)
}

// checkAppend refuses to put files beside others that a reader could not read
// together with them.
func checkAppend(m *Manifest, t *engine.Target, d *detail) error {
	if len(m.Files) == 0 {
		return nil
	}
	if m.Format != d.Format {
		return engine.Permanentf("append in the same format, or replace", "%s holds %s files, %s can't be appended", t.Name, m.Format, d.Format)
	}
	old := map[string]string{}
	for _, c := range m.Columns {
		old[c.Name] = c.Type
	}
	for _, c := range t.Columns {
		have, known := old[c.Name]
		switch {
		case !known && t.SchemaRule == engine.SchemaFreeze:
			return engine.Permanentf("set schema: evolve, or replace", "%s: column %q is new, and the schema is frozen", t.Name, c.Name)
		case !known:
			t.Warnings = append(t.Warnings, fmt.Sprintf("column %q is new: earlier files don't have it", c.Name))
		case have != c.Type:
			return engine.Permanentf("replace the table, or write it under another target name",
				"%s: column %q is %s in earlier files and would be %s now", t.Name, c.Name, have, c.Type)
		}
		delete(old, c.Name)
	}
	for _, c := range m.Columns {
		if _, gone := old[c.Name]; gone {
			t.Warnings = append(t.Warnings, fmt.Sprintf("column %q is gone: only earlier files have it", c.Name))
		}
	}
	return nil
}

// Prepare implements engine.SinkSession. A folder with data files that no run
// of ours wrote is refused: a reader of the folder would mix them up, and a
// sweep must never remove what is not ours.
func (s *session) Prepare(ctx context.Context, t *engine.Target) (*engine.Prepared, error) {
	d, err := detailOf(t)
	if err != nil {
		return nil, err
	}
	if err := s.store.prepare(ctx, d.Folder); err != nil {
		return nil, err
	}
	m, _, err := s.readManifest(ctx, d.Folder)
	if err != nil {
		return nil, err
	}
	if err := m.checkOwner(t); err != nil {
		return nil, err
	}
	err = s.store.list(ctx, d.Folder, func(key string) error {
		rel := strings.TrimPrefix(key, d.Folder+"/")
		if _, ours := runOf(rel); !ours && isData(rel) {
			return engine.Permanentf("move it away, or write to another path", "%s: file %s was not written by tranship", t.Name, rel)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &engine.Prepared{}, nil
}

// Close implements engine.SinkSession.
func (s *session) Close(context.Context) error {
	s.store.close()
	return nil
}
