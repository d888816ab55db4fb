package memsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tranship-io/tranship/engine"
)

// Apply implements [engine.SinkSession]: an epoch is one object, which nothing
// reads before a manifest lists it.
func (s *ObjectSession) Apply(ctx context.Context, e *engine.Epoch) (*engine.Receipt, error) {
	t := only(e.Targets)
	subject := fmt.Sprintf("%s@%d#%d", e.Split, e.Claim, e.Number)
	in := newIntake(t)
	for {
		b, err := e.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := in.take(b, e.Split); err != nil {
			return nil, err
		}
		if err := s.do(ctx, "sink.apply.rows", subject, func() error { return nil }); err != nil {
			return nil, err
		}
	}
	end := e.End()
	rc := &engine.Receipt{Applied: end.Rows, Bytes: end.Bytes, CRC: in.crc, Verified: t.Verify == engine.VerifyDigest}
	if rc.Verified {
		for _, r := range in.rows {
			rc.ReadBack.AddRow(r.Wire)
		}
	}
	if end.Rows == 0 {
		return rc, nil
	}
	put := func() error {
		return s.do(ctx, "sink.apply.commit", subject, func() error {
			s.o.written++
			name := nameOf(t, e.Split, e.Number, e.Claim, end.Digest.String(), s.o.written)
			s.o.bucket.objects[name] = in.rows
			rc.Artifacts = []engine.Artifact{{Name: name, Split: e.Split, Epoch: e.Number, Claim: e.Claim, Rows: end.Rows, Bytes: end.Bytes, Digest: end.Digest}}
			return nil
		})
	}
	if err := put(); err != nil {
		return nil, err
	}
	return rc, nil
}

// Publish implements [engine.SinkSession].
func (s *ObjectSession) Publish(ctx context.Context, p *engine.Publication) (*engine.Receipt, error) {
	subject := fmt.Sprintf("%s@%d", p.Split, p.Claim)
	for {
		var have manifest
		err := s.do(ctx, "sink.publish.begin", subject, func() error {
			have = s.o.bucket.manifests[p.Target.Name]
			return nil
		})
		if err != nil {
			return nil, err
		}
		if have.run == p.Target.RunID && !s.o.opt.Broken.NoPublishRow {
			return &engine.Receipt{Applied: have.applied, AlreadyDone: true, Published: &have.totals}, nil
		}
		if have.ordinal >= p.Target.Ordinal && !s.o.opt.Broken.NoOrdinalCheck {
			return nil, &engine.StaleError{What: "ordinal", Subject: p.Target.Resource, Ours: p.Target.Ordinal, Have: have.ordinal}
		}
		if p.Target.Read == engine.ReadIncremental && !bytes.Equal(p.From, have.cursor) && !s.o.opt.Broken.NoCursorCheck {
			return nil, fmt.Errorf("publish %s: the manifest is at %s, the plan starts at %s: %w", p.Target.Resource, have.cursor, p.From, engine.ErrPlanVoid)
		}
		swapped := false
		var rc *engine.Receipt
		err = s.do(ctx, "sink.publish.commit", subject, func() error {
			// If-Match: the manifest is still the one that was read.
			if s.o.bucket.manifests[p.Target.Name].tag != have.tag {
				return nil
			}
			swapped = true
			var err error
			rc, err = s.o.swap(p, have)
			return err
		})
		if err != nil || swapped {
			return rc, err
		}
	}
}

// swap writes the next manifest and sweeps what no manifest will ever list.
func (o *Objects) swap(p *engine.Publication, have manifest) (*engine.Receipt, error) {
	t := p.Target
	next := manifest{tag: have.tag + 1, route: t.Route, resource: t.Resource, run: t.RunID, ordinal: t.Ordinal, claim: p.Claim,
		cursor: p.Cursor, seen: p.Seen, totals: p.Totals, replaced: have.replaced}
	if t.Write == engine.WriteReplace {
		next.replaced = t.RunID
	} else {
		next.artifacts = slices.Clone(have.artifacts)
	}
	for _, a := range p.Artifacts {
		rows, ok := o.bucket.objects[a.Name]
		if !ok && !o.opt.Broken.NoStagingCheck {
			return nil, fmt.Errorf("publish %s: an artifact of split %s is gone: %w", t.Resource, a.Split, engine.ErrStagingLost)
		}
		next.artifacts = append(next.artifacts, a.Name)
		next.applied += int64(len(rows))
	}
	if o.opt.Observe != nil {
		o.opt.Observe(Commit{Target: t, Split: p.Split, Claim: p.Claim, Epoch: 1, Publish: true, HaveRun: have.run, HaveOrdinal: have.ordinal, HaveClaim: -1, HaveEpoch: -1})
	}
	if next.applied != p.Totals.Applied && !o.opt.Broken.NoStagingCheck {
		return nil, engine.Bugf("publish %s: the artifacts hold %d rows, the splits %d", t.Resource, next.applied, p.Totals.Applied)
	}
	o.bucket.manifests[t.Name] = next
	o.version++
	o.sweep(t, func(a artifactName) bool { return a.ordinal <= t.Ordinal })
	return &engine.Receipt{Applied: next.applied}, nil
}
