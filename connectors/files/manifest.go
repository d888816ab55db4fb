package files

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// manifestVersion is the version of the manifest's format. A field's meaning
// never changes within a version.
const manifestVersion = 1

// keptRuns bounds the list of published runs, the newest last.
const keptRuns = 500

// Manifest says which files are a table's content. It is the only thing that a
// reader needs, and the only thing that a publish changes (P11).
type Manifest struct {
	Version int `json:"version"`
	// Installation, Pipeline, Source, Sink and Resource are the route that owns
	// the folder.
	Installation string `json:"installation"`
	Pipeline     string `json:"pipeline"`
	Source       string `json:"source"`
	Sink         string `json:"sink"`
	Resource     string `json:"resource"`
	// RunID, Ordinal and Claim are those of the last publish: its fence.
	RunID   string `json:"run_id"`
	Ordinal int64  `json:"ordinal"`
	Claim   int64  `json:"claim"`
	// Format and Compression are those of the newest files.
	Format      string        `json:"format"`
	Compression string        `json:"compression"`
	Schema      schema.Schema `json:"schema"`
	// Columns are the columns in the files, lineage columns included.
	Columns []engine.TargetColumn `json:"columns"`
	// Files are the content, in order of their names within each run.
	Files []ManifestFile `json:"files"`
	// Rows, Bytes and Digest are sums over Files.
	Rows   int64            `json:"rows"`
	Bytes  int64            `json:"bytes"`
	Digest integrity.Digest `json:"digest"`
	// Cursor is where the next incremental run goes on; Seen are the rows of its
	// window that are here already, as 16 bytes each.
	Cursor json.RawMessage `json:"cursor,omitempty"`
	Seen   seenRows        `json:"seen,omitempty"`
	// Runs are the published runs, oldest first.
	Runs []ManifestRun `json:"runs"`
}

// ManifestFile is one data file.
type ManifestFile struct {
	// Name is relative to the manifest's folder, with forward slashes.
	Name string `json:"name"`
	// RunID is the run that wrote it.
	RunID string `json:"run_id"`
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"`
	// Digest is the content digest of the rows.
	Digest integrity.Digest `json:"digest"`
	// Checksum is "crc32c:" and eight hex digits, over the file's bytes.
	Checksum string `json:"checksum"`
}

// ManifestRun is one published run.
type ManifestRun struct {
	RunID   string           `json:"run_id"`
	Ordinal int64            `json:"ordinal"`
	Write   engine.WriteMode `json:"write"`
	Rows    int64            `json:"rows"`
	Files   int              `json:"files"`
	Digest  integrity.Digest `json:"digest"`
	// StartedAt is when the run began.
	StartedAt time.Time `json:"started_at"`
}

// seenRows travel as base64 of their bytes, one after the other.
type seenRows []engine.RowID

// MarshalJSON implements json.Marshaler.
func (s seenRows) MarshalJSON() ([]byte, error) {
	raw := make([]byte, 0, len(s)*16)
	for _, id := range s {
		raw = append(raw, id[:]...)
	}
	return json.Marshal(base64.StdEncoding.EncodeToString(raw))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *seenRows) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("read remembered rows: %w", err)
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw)%16 != 0 {
		return errors.New("read remembered rows: want base64 of 16 bytes a row")
	}
	*s = make(seenRows, len(raw)/16)
	for i := range *s {
		copy((*s)[i][:], raw[16*i:])
	}
	return nil
}

// ParseManifest reads a manifest and checks that it is whole: known version,
// relative file names of our layout, sums that agree.
func ParseManifest(data []byte) (*Manifest, error) {
	var m Manifest
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read manifest: something follows the document")
	}
	if m.Version != manifestVersion {
		return nil, fmt.Errorf("read manifest: version %d is not known to this version of tranship, which reads version %d", m.Version, manifestVersion)
	}
	if m.Resource == "" || m.RunID == "" || m.Ordinal < 1 {
		return nil, errors.New("read manifest: resource, run_id or ordinal is missing")
	}
	if len(m.Cursor) > 0 {
		// Cursors come back as their sources wrote them: without our indentation.
		var plain bytes.Buffer
		if err := json.Compact(&plain, m.Cursor); err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		m.Cursor = plain.Bytes()
	}
	var rows, size int64
	var digest integrity.Digest
	names := make(map[string]bool, len(m.Files))
	for _, f := range m.Files {
		if _, ok := runOf(f.Name); !ok || strings.Contains(f.Name, "..") || strings.Contains(f.Name, "\\") {
			return nil, fmt.Errorf("read manifest: file name %q is not of the form run/split/file", f.Name)
		}
		if names[f.Name] {
			return nil, fmt.Errorf("read manifest: file %s is listed twice", f.Name)
		}
		if f.Rows < 0 || f.Bytes < 0 {
			return nil, fmt.Errorf("read manifest: file %s has a negative size", f.Name)
		}
		names[f.Name] = true
		rows += f.Rows
		size += f.Bytes
		digest.Add(f.Digest)
	}
	if rows != m.Rows || size != m.Bytes || digest != m.Digest {
		return nil, errors.New("read manifest: the sums of its files differ from its totals")
	}
	return &m, nil
}

// encode writes the manifest as it is stored.
func (m *Manifest) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, engine.Bugf("encode manifest: %w", err)
	}
	return append(b, '\n'), nil
}

// published returns the run's entry if the manifest has it.
func (m *Manifest) published(runID string) (ManifestRun, bool) {
	if m == nil {
		return ManifestRun{}, false
	}
	i := slices.IndexFunc(m.Runs, func(r ManifestRun) bool { return r.RunID == runID })
	if i < 0 {
		return ManifestRun{}, false
	}
	return m.Runs[i], true
}

// checkOwner refuses a folder that belongs to another route, and a run that a
// newer one overtook (invariant 2).
func (m *Manifest) checkOwner(t *engine.Target) error {
	if m == nil {
		return nil
	}
	if m.Pipeline != t.Route.Pipeline || m.Source != t.Route.Source || m.Resource != t.Resource {
		return engine.Permanentf("write to another path or under another target name, or remove that folder",
			"%s: the folder belongs to resource %s of pipeline %q from %s", t.Name, m.Resource, m.Pipeline, m.Source)
	}
	if m.Installation != t.Route.Installation {
		return engine.Permanentf("run with the state file of that installation, or remove the folder to begin anew",
			"%s: the folder was written by installation %s, this is %s", t.Name, m.Installation, t.Route.Installation)
	}
	if _, ours := m.published(t.RunID); ours {
		return nil
	}
	if m.Ordinal >= t.Ordinal {
		return &engine.StaleError{What: "ordinal", Subject: t.Resource, Ours: t.Ordinal, Have: m.Ordinal}
	}
	return nil
}

// checkFrom requires an incremental plan to start where the manifest is: the
// folder was set back, or went on meanwhile, and rows would be missing or doubled (P3).
func (m *Manifest) checkFrom(p *engine.Publication) error {
	if p.Target.Read != engine.ReadIncremental {
		return nil
	}
	var have json.RawMessage
	at := "at no cursor"
	if m != nil && len(m.Cursor) > 0 {
		have, at = m.Cursor, "at "+string(m.Cursor)
	}
	if engine.SameJSON(have, p.From) {
		return nil
	}
	return fmt.Errorf("publish %s: the manifest is %s, the plan follows on %s: %w", p.Target.Name, at, cmp.Or(string(p.From), "none"), engine.ErrPlanVoid)
}

// readManifest returns a folder's manifest and its version; nil and "" if there
// is none.
func (s *session) readManifest(ctx context.Context, folder string) (*Manifest, string, error) {
	data, version, err := s.store.read(ctx, folder+"/"+manifestName)
	if errors.Is(err, errNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	m, err := ParseManifest(data)
	if err != nil {
		return nil, "", engine.Permanentf("restore the manifest, or move the folder away to begin anew",
			"%s/%s: %w", folder, manifestName, err)
	}
	return m, version, nil
}
