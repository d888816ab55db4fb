package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/internal/redact"
)

// Rhythms of showing progress.
const (
	barsEvery  = 200 * time.Millisecond
	linesEvery = 10 * time.Second
)

// progress shows a run's counters: bars on a terminal, plain lines elsewhere.
// What is written to it appears above the bars.
type progress struct {
	out    io.Writer
	quiet  bool
	bars   *mpb.Progress
	redact *redact.Redactor

	mu     sync.Mutex
	stop   chan struct{}
	done   sync.WaitGroup
	seen   map[string]*shownResource
	closed bool
}

// shownResource is one resource as it is shown now.
type shownResource struct {
	counters *runner.ResourceProgress
	began    time.Time
	bar      *mpb.Bar
	rate     rate
	told     bool
}

// newProgress shows on w, which may be a terminal.
func newProgress(w io.Writer, quiet bool) *progress {
	p := &progress{out: w, quiet: quiet, stop: make(chan struct{}), seen: map[string]*shownResource{}}
	if r, ok := w.(*redact.Writer); ok && terminal(w) && !quiet {
		// The bars need the terminal itself; what passes Write is cleaned there.
		p.redact = r.Redactor
		p.bars = mpb.New(mpb.WithOutput(r.Out.(*os.File)), mpb.WithRefreshRate(barsEvery))
	}
	return p
}

// Write puts text above the bars.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	bars := p.bars
	if p.closed {
		bars = nil
	}
	p.mu.Unlock()
	if bars == nil {
		return p.out.Write(b)
	}
	if _, err := bars.Write(p.redact.Clean(b)); err != nil {
		return p.out.Write(b)
	}
	return len(b), nil
}

// follow shows the counters until close.
func (p *progress) follow(counters *runner.Progress) {
	if p.quiet {
		return
	}
	every := linesEvery
	if p.bars != nil {
		every = barsEvery
	}
	p.done.Add(1)
	go func() {
		defer p.done.Done()
		tick := time.NewTicker(every)
		defer tick.Stop()
		// Resources that end are told soon, whatever the rhythm.
		soon := time.NewTicker(barsEvery)
		defer soon.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-soon.C:
				p.update(counters, false)
			case <-tick.C:
				p.update(counters, true)
			}
		}
	}()
}

// close gives the terminal back and tells what ended since the last look.
func (p *progress) close(counters *runner.Progress) {
	close(p.stop)
	p.done.Wait()
	if p.bars != nil {
		for _, s := range p.seen {
			if s.bar != nil {
				s.bar.Abort(true)
				s.bar = nil
			}
		}
		// An aborted bar is drawn once more before it goes.
		time.Sleep(3 * barsEvery)
		p.bars.Wait()
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	if counters != nil && !p.quiet {
		p.update(counters, false)
	}
}

// update looks at every resource; lines says whether running ones get a line.
func (p *progress) update(counters *runner.Progress, lines bool) {
	now := time.Now()
	for _, c := range counters.Resources() {
		s := p.seen[c.Resource]
		if s == nil || s.counters != c {
			s = &shownResource{counters: c, began: now}
			p.seen[c.Resource] = s
		}
		s.rate.add(now, c.Read.Load())
		ended := c.Published.Load() || c.Failed.Load()
		if ended && !s.told {
			s.told = true
			p.tell(s, now)
		}
		if ended || c.Read.Load() == 0 && c.SplitsDone.Load() == 0 {
			continue
		}
		if p.bars != nil && !p.closed {
			p.bar(s)
		} else if lines {
			p.line(s)
		}
	}
}

// tell says that a resource ended.
func (p *progress) tell(s *shownResource, now time.Time) {
	if s.bar != nil {
		s.bar.Abort(true)
		s.bar = nil
	}
	c := s.counters
	switch {
	case p.bars != nil && c.Published.Load():
		_, _ = fmt.Fprintf(p, "%s: %s in %s\n", c.Resource, plural(c.Applied.Load(), "row"), span(now.Sub(s.began)))
	case p.bars != nil:
		_, _ = fmt.Fprintf(p, "%s: failed after %s\n", c.Resource, plural(c.Applied.Load(), "row"))
	case c.Published.Load():
		p.log().Info("published", "resource", c.Resource, "rows", c.Applied.Load())
	default:
		p.log().Error("failed", "resource", c.Resource, "rows", c.Applied.Load())
	}
}

func (p *progress) log() *slog.Logger { return slog.New(slog.NewTextHandler(p, nil)) }

// line says how a running resource stands.
func (p *progress) line(s *shownResource) {
	c := s.counters
	attrs := []any{"resource", c.Resource, "rows", c.Read.Load(), "durable", c.Applied.Load(), "bytes", size(c.ReadBytes.Load()), "rows_per_second", int64(s.rate.perSecond())}
	if left, ok := s.left(); ok {
		attrs = append(attrs, "eta", left.String())
	}
	p.log().Info("progress", attrs...)
}

// bar shows or moves a running resource's bar.
func (p *progress) bar(s *shownResource) {
	c := s.counters
	if s.bar == nil {
		// Made without a total, because only then it can be moved.
		s.bar = p.bars.AddBar(0,
			mpb.PrependDecorators(decor.Name(c.Resource, decor.WCSyncSpaceR)),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return s.numbers() }, decor.WCSyncSpace)))
	}
	// Estimates may be below the truth: a bar never ends before its resource.
	done := max(c.Applied.Load(), c.Read.Load())
	s.bar.SetTotal(max(c.EstimatedRows, done+1), false)
	s.bar.SetCurrent(done)
}

func (s *shownResource) numbers() string {
	c := s.counters
	text := fmt.Sprintf("%s rows  %s/s  %s", count(c.Read.Load()), count(int64(s.rate.perSecond())), size(c.ReadBytes.Load()))
	if left, ok := s.left(); ok {
		text += "  " + left.String() + " left"
	}
	return text
}

// left estimates how long a resource still takes.
func (s *shownResource) left() (time.Duration, bool) {
	per := s.rate.perSecond()
	rows := s.counters.EstimatedRows - s.counters.Applied.Load()
	if per <= 0 || s.counters.EstimatedRows <= 0 || rows <= 0 {
		return 0, false
	}
	return time.Duration(float64(rows) / per * float64(time.Second)).Round(time.Second), true
}

// rate is a moving average of rows per second over the last half minute.
type rate struct {
	mu     sync.Mutex
	points []ratePoint
}

type ratePoint struct {
	at   time.Time
	rows int64
}

// window is how far back a rate looks.
const window = 30 * time.Second

func (r *rate) add(at time.Time, rows int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.points = append(r.points, ratePoint{at, rows})
	for len(r.points) > 2 && at.Sub(r.points[0].at) > window {
		r.points = r.points[1:]
	}
}

func (r *rate) perSecond() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.points) < 2 {
		return 0
	}
	first, last := r.points[0], r.points[len(r.points)-1]
	d := last.at.Sub(first.at).Seconds()
	if d <= 0 {
		return 0
	}
	return float64(last.rows-first.rows) / d
}
