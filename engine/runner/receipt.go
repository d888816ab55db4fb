package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// receipt adds up what State knows of the run.
func (r *run) receipt(ctx context.Context, end engine.RunEnd) (*engine.RunReceipt, error) {
	now := time.Now()
	cpu, peak := usage()
	out := &engine.RunReceipt{
		ReceiptVersion: engine.ReceiptVersion, RunID: r.rec.ID.String(), Pipeline: r.Pipeline, Version: r.rec.Version,
		State: end.State, Resumable: end.Resumable, Error: end.Error, Source: r.route.Source, Sink: r.route.Sink,
		Resources: []engine.ResourceReceipt{}, StartedAt: r.rec.StartedAt.UTC(), EndedAt: now.UTC(),
		Seconds: now.Sub(r.began).Seconds(), CPUSeconds: cpu, PeakMemoryBytes: peak,
	}
	rec, err := r.State.GetRun(ctx, r.rec.ID)
	if err != nil {
		return nil, fmt.Errorf("load run: %w", err)
	}
	out.Attempts = rec.Attempts
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plan == nil {
		return out, nil
	}
	splits, err := r.State.Splits(ctx, r.rec.ID)
	if err != nil {
		return nil, fmt.Errorf("load splits: %w", err)
	}
	for _, rp := range r.plan.Resources {
		if rp.Stream != nil {
			continue // its rows are the members'
		}
		out.Resources = append(out.Resources, r.resourceReceipt(rp, splits))
	}
	return out, nil
}

func (r *run) resourceReceipt(rp *engine.ResourcePlan, splits []engine.SplitStatus) engine.ResourceReceipt {
	name := rp.Selection.Resource
	out := engine.ResourceReceipt{
		Resource: name, Target: rp.Target.Name, Read: rp.Read, Write: rp.Write, Consistency: rp.Source.Consistency,
		State: "incomplete", Policies: []engine.PolicyCount{}, Coverage: rp.Source.Coverage, Technique: rp.Target.Technique,
		Warnings: append(append([]string(nil), rp.Source.Warnings...), rp.Target.Warnings...),
	}
	if err := r.failed[name]; err != nil {
		out.State, out.Error = "failed", err.Error()
	}
	var t, changes engine.Totals
	for _, s := range splits {
		if s.Resource == engine.StreamResource {
			changes.Add(s.Totals.Members[name])
			continue
		}
		if s.Resource != name {
			continue
		}
		t.Add(s.Totals)
		if s.Kind == engine.SplitRead {
			out.Splits++
			if s.Done {
				out.SplitsDone++
			}
			out.Attempts = max(out.Attempts, s.Claim)
		} else if s.Done {
			out.State, out.Error, out.Verified = "published", "", string(rp.Target.Verify)
		}
	}
	t.Add(changes)
	out.RowsRead, out.RowsWritten, out.RowsSuperseded = t.Read, t.Applied, t.Superseded
	out.RowsSkipped, out.RowsSetAside, out.Bytes = t.Skipped, t.SetAside, t.Bytes
	out.SourceDigest = t.Digest
	switch {
	case changes.Read > 0 && out.Verified != "":
		// Changes are counted and compared by checksum; their rows are not read back.
		out.Verified = string(engine.VerifyCounts)
	case rp.Target.Verify == engine.VerifyDigest:
		d := t.ReadBack
		out.DestinationDigest = &d
	}
	out.Policies = append(out.Policies, t.Policies...)
	return out
}

// seal puts the receipt and the closing facts into the run's end.
func (r *run) seal(end *engine.RunEnd, receipt *engine.RunReceipt, cause error) error {
	body, err := json.Marshal(receipt)
	if err != nil {
		return fmt.Errorf("encode receipt: %w", err)
	}
	end.Receipt = body
	sum := sha256.Sum256(body)
	end.Facts = append(end.Facts, r.fact(events.ReceiptIssued{SHA256: hex.EncodeToString(sum[:])}))
	switch end.State {
	case engine.StateCompleted:
		var read, written int64
		for _, rr := range receipt.Resources {
			read += rr.RowsRead
			written += rr.RowsWritten
		}
		end.Facts = append(end.Facts, r.fact(events.RunCompleted{RowsRead: read, RowsWritten: written, Millis: int64(receipt.Seconds * 1000)}))
	case engine.StatePaused:
		end.Facts = append(end.Facts, r.fact(events.RunPaused{Reason: "stop requested"}))
	case engine.StateCanceled:
		end.Facts = append(end.Facts, r.fact(events.RunCanceled{Reason: "cancel requested"}))
	default:
		end.Facts = append(end.Facts, r.fact(events.RunFailed{Class: string(engine.ClassOf(cause)), Error: end.Error,
			Hint: engine.HintOf(cause), Resumable: end.Resumable}))
	}
	return nil
}

// usage returns this process's CPU time in seconds and greatest resident set in bytes.
func usage() (float64, int64) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	sec := func(t unix.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return sec(u.Utime) + sec(u.Stime), u.Maxrss * maxrssUnit
}
