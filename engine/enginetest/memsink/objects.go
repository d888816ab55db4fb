package memsink

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
)

// Objects is a destination without transactions: artifacts under names that are
// never written twice, and one manifest a target that changes only by
// compare-and-swap (P11).
type Objects struct {
	opt Options

	mu      sync.Mutex
	bucket  bucket
	version int64
	written int64
}

// bucket is what survives sessions; its values never change.
type bucket struct {
	objects   map[string][]Row
	manifests map[string]manifest
}

// manifest is what a reader of a target reads.
type manifest struct {
	tag       int64
	route     engine.Route
	resource  string
	run       string
	ordinal   int64
	claim     int64
	cursor    []byte
	seen      []engine.RowID
	artifacts []string
	applied   int64
	totals    engine.Totals
	// replaced is the run of the last replace.
	replaced string
}

// NewObjects makes an empty destination.
func NewObjects(opt Options) *Objects {
	if opt.Identity == "" {
		opt.Identity = "mem://objects"
	}
	return &Objects{opt: opt, bucket: bucket{objects: map[string][]Row{}, manifests: map[string]manifest{}}}
}

// Backup returns a copy of the whole destination.
func (o *Objects) Backup() any {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bucket.clone()
}

// Restore puts an earlier copy in the destination's place.
func (o *Objects) Restore(backup any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b, ok := backup.(bucket); ok {
		o.bucket = b.clone()
	}
	o.version++
}

// Crash does nothing: an object is durable once it is written.
func (o *Objects) Crash() {}

func (b bucket) clone() bucket {
	return bucket{objects: maps.Clone(b.objects), manifests: maps.Clone(b.manifests)}
}

// Version changes whenever a manifest does.
func (o *Objects) Version() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.version
}

// Knows tells whether a route has published here, so that a lost State finds it again.
func (o *Objects) Knows() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.bucket.manifests) > 0
}

// Rows returns the rows that the target's manifest lists, and the run that
// replaced them last. A listed object that is missing is a row of run "missing".
func (o *Objects) Rows(name string) (rows []Row, replacedBy string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := o.bucket.manifests[name]
	for _, a := range m.artifacts {
		part, ok := o.bucket.objects[a]
		if !ok {
			part = []Row{{Run: "missing"}}
		}
		rows = append(rows, part...)
	}
	return rows, m.replaced
}

// Staging lists the artifacts that no manifest lists.
func (o *Objects) Staging() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	listed := map[string]bool{}
	for _, m := range o.bucket.manifests {
		for _, a := range m.artifacts {
			listed[a] = true
		}
	}
	var out []string
	for name := range o.bucket.objects {
		if !listed[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Has tells whether an artifact is there.
func (o *Objects) Has(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.bucket.objects[name]
	return ok
}

// ObjectSink is the [engine.Sink] of an object store.
type ObjectSink struct {
	DB *Objects
	// Gate is where the sessions' effects pass; nil means open.
	Gate gate.Func
}

var _ engine.Sink = (*ObjectSink)(nil)

// Spec implements [engine.Sink].
func (s *ObjectSink) Spec() engine.Spec {
	spec := engine.Spec{
		Name: "memobjects", Title: "In-memory objects", Summary: "Artifacts and manifests for simulations and conformance suites.",
		Writes:   []engine.WriteMode{engine.WriteReplace, engine.WriteAppend},
		Delivery: "effectively-once",
	}
	if !s.DB.opt.NoWire {
		spec.Wire = []engine.WireFormat{memrow.Wire}
	}
	return spec
}

// Open implements [engine.Sink].
func (s *ObjectSink) Open(ctx context.Context, _ engine.Config, _ engine.OpenOptions) (engine.SinkSession, error) {
	out := &ObjectSession{o: s.DB, gate: s.Gate}
	if out.gate == nil {
		out.gate = gate.Open
	}
	if err := out.gate(ctx, gate.Call{Op: "sink.open"}, func() error { return nil }); err != nil {
		return nil, err
	}
	return out, nil
}

// ObjectSession is a connection to an object store.
type ObjectSession struct {
	o    *Objects
	gate gate.Func
}

var (
	_ engine.SinkSession = (*ObjectSession)(nil)
	_ engine.Adopter     = (*ObjectSession)(nil)
)

// Identity implements [engine.SinkSession].
func (s *ObjectSession) Identity() string { return s.o.opt.Identity }

// Close implements [engine.SinkSession].
func (s *ObjectSession) Close(context.Context) error { return nil }

func (s *ObjectSession) do(ctx context.Context, op, subject string, effect func() error) error {
	return s.gate(ctx, gate.Call{Op: op, Subject: subject}, func() error {
		s.o.mu.Lock()
		defer s.o.mu.Unlock()
		return effect()
	})
}

// Plan implements [engine.SinkSession].
func (s *ObjectSession) Plan(_ context.Context, req engine.TargetRequest) (*engine.Target, error) {
	if req.Write != engine.WriteReplace && req.Write != engine.WriteAppend {
		return nil, engine.Permanentf("replace or append", "resource %s: objects can't be written by %s", req.Plan.Resource.Name, req.Write)
	}
	t := target(req)
	t.Staged, t.Technique = true, "manifest"
	t.RememberWindow = req.Read == engine.ReadIncremental && req.Write == engine.WriteAppend
	for _, w := range req.Plan.Wire {
		if w == memrow.Wire && !s.o.opt.NoWire {
			t.Wire = w
		}
	}
	return t, nil
}

// Prepare implements [engine.SinkSession].
func (s *ObjectSession) Prepare(ctx context.Context, t *engine.Target) (*engine.Prepared, error) {
	err := s.do(ctx, "sink.prepare", t.Resource, func() error { return nil })
	if err != nil {
		return nil, err
	}
	return &engine.Prepared{}, nil
}

// Abort implements [engine.SinkSession].
func (s *ObjectSession) Abort(ctx context.Context, t *engine.Target) error {
	return s.do(ctx, "sink.abort", t.Resource, func() error {
		if s.o.bucket.manifests[t.Name].run != t.RunID {
			s.o.sweep(t, func(a artifactName) bool { return a.run == t.RunID && a.generation == t.Generation })
		}
		return nil
	})
}

// artifactName is what an object's name says (P11).
type artifactName struct {
	target     string
	run        string
	ordinal    int64
	generation int
}

func nameOf(t *engine.Target, split string, epoch, claim int64, digest string, serial int64) string {
	return fmt.Sprintf("%s\x00%s\x00%d\x00%d\x00%s/%d-%d-%s-%d", t.Name, t.RunID, t.Ordinal, t.Generation, split, epoch, claim, digest, serial)
}

func parseName(s string) artifactName {
	var a artifactName
	part := func() string {
		for i := range len(s) {
			if s[i] == 0 {
				p := s[:i]
				s = s[i+1:]
				return p
			}
		}
		return s
	}
	a.target, a.run = part(), part()
	// The names are our own: their numbers are numbers.
	_, _ = fmt.Sscan(part(), &a.ordinal)
	_, _ = fmt.Sscan(part(), &a.generation)
	return a
}

// sweep deletes the target's unlisted objects that match.
func (o *Objects) sweep(t *engine.Target, match func(artifactName) bool) {
	listed := o.bucket.manifests[t.Name].artifacts
	for name := range o.bucket.objects {
		if a := parseName(name); a.target == t.Name && match(a) && !slices.Contains(listed, name) {
			delete(o.bucket.objects, name)
		}
	}
}

// Adopt implements [engine.Adopter]: the manifests know what was published last.
func (s *ObjectSession) Adopt(ctx context.Context, r engine.Route) ([]engine.Adoption, error) {
	var out []engine.Adoption
	err := s.do(ctx, "sink.adopt", r.Pipeline, func() error {
		for _, name := range slices.Sorted(maps.Keys(s.o.bucket.manifests)) {
			m := s.o.bucket.manifests[name]
			if m.route.Pipeline != r.Pipeline || m.route.Source != r.Source || m.route.Sink != r.Sink {
				continue
			}
			i := slices.IndexFunc(out, func(a engine.Adoption) bool { return a.Installation == m.route.Installation })
			if i < 0 {
				i = len(out)
				out = append(out, engine.Adoption{Installation: m.route.Installation})
			}
			if m.ordinal > out[i].Ordinal {
				out[i].Ordinal, out[i].RunID = m.ordinal, m.run
			}
			out[i].Resources = append(out[i].Resources, engine.AdoptedResource{Resource: m.resource, Cursor: m.cursor, Seen: m.seen,
				RunID: m.run, Ordinal: m.ordinal, Published: true})
		}
		return nil
	})
	return out, err
}
