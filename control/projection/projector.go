package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/tranship-io/tranship/control"
)

// RunRef names a run across organizations.
type RunRef struct{ Organization, Run uuid.UUID }

// Relay tells which runs have facts that were not passed on yet.
type Relay interface {
	// Pending returns runs whose facts wait, the longest waiting first, from at most
	// limit relay rows.
	Pending(ctx context.Context, limit int) ([]RunRef, error)
	// Confirm tells that facts of runs up to a number have been taken.
	Confirm(ctx context.Context, through map[RunRef]int64) error
}

// Store keeps the read models.
type Store interface {
	// Project folds the facts of some runs of an organization that are not folded
	// yet, up to a limit for each run, in one transaction.
	Project(ctx context.Context, organization uuid.UUID, runs []uuid.UUID) (Outcome, error)
}

// Outcome is what a projection did.
type Outcome struct {
	// Through is up to which fact each run is folded; one that is not here has no row.
	Through map[uuid.UUID]int64
	// More are runs that have more facts.
	More []uuid.UUID
	// Ended are the pipelines of which a run ended, or ended before.
	Ended []uuid.UUID
	// Facts counts those that were folded now.
	Facts int
}

const (
	pendingRows = 4096
	// chunk is how many runs share a transaction: enough to share its round trips,
	// few enough to hold their rows only for milliseconds.
	chunk = 64
)

// Projector folds what the relay tells of.
type Projector struct {
	Relay Relay
	Store Store
	// Ended is called after a run of a pipeline ended, at least once for each
	// ending, and before its facts are confirmed; nil: nobody wants to know.
	Ended func(ctx context.Context, organization, pipeline uuid.UUID) error
	// Clock paces retries after a failure.
	Clock control.Clock
	Log   *slog.Logger
	// Workers is how many transactions run side by side; 0 means 4.
	Workers int

	once sync.Once
	wake chan struct{}
}

// Nudge tells that facts may wait. It never blocks.
func (p *Projector) Nudge() {
	p.init()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Projector) init() { p.once.Do(func() { p.wake = make(chan struct{}, 1) }) }

// Run folds until the context ends: at once, and after each nudge. In between it
// asks nothing (invariant 14). What fails is tried again after 1 second, doubling
// to a minute.
func (p *Projector) Run(ctx context.Context) {
	p.init()
	retry := time.Duration(0)
	for ctx.Err() == nil {
		_, err := p.Drain(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			retry = 0
			select {
			case <-ctx.Done():
			case <-p.wake:
			}
			continue
		}
		retry = min(max(2*retry, time.Second), time.Minute)
		p.Log.ErrorContext(ctx, "projection", "error", err, "retry", retry)
		control.SleepOrWake(ctx, p.Clock, p.Clock.Now().Add(retry), p.wake)
	}
}

// Drain folds all that waits and returns how many facts that were. A run that
// cannot be folded is left and told in the error; the others are not held up.
func (p *Projector) Drain(ctx context.Context) (int, error) {
	bad := map[RunRef]bool{}
	var failed error
	total := 0
	for {
		pending, err := p.Relay.Pending(ctx, pendingRows)
		if err != nil {
			return total, errors.Join(failed, err)
		}
		byOrganization := map[uuid.UUID][]uuid.UUID{}
		for _, r := range pending {
			if !bad[r] {
				byOrganization[r.Organization] = append(byOrganization[r.Organization], r.Run)
			}
		}
		if len(byOrganization) == 0 {
			return total, failed
		}
		n, broken, err := p.fold(ctx, byOrganization)
		total += n
		failed = errors.Join(failed, err)
		for _, r := range broken {
			bad[r] = true
		}
		var away *control.UnavailableError
		if ctx.Err() != nil || errors.As(err, &away) {
			return total, failed
		}
	}
}

// Fold folds the facts of runs that somebody tells of, as [Projector.Drain] does
// with those that the relay tells of. broken are the runs that could not be folded.
func (p *Projector) Fold(ctx context.Context, runs []RunRef) (broken []RunRef, err error) {
	byOrganization := map[uuid.UUID][]uuid.UUID{}
	for _, r := range runs {
		if !slices.Contains(byOrganization[r.Organization], r.Run) {
			byOrganization[r.Organization] = append(byOrganization[r.Organization], r.Run)
		}
	}
	_, broken, err = p.fold(ctx, byOrganization)
	return broken, err
}

// fold folds chunks of runs side by side.
func (p *Projector) fold(ctx context.Context, runs map[uuid.UUID][]uuid.UUID) (facts int, broken []RunRef, err error) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(max(p.Workers, 1))
	if p.Workers == 0 {
		g.SetLimit(4)
	}
	for organization, list := range runs {
		for len(list) > 0 {
			part := list[:min(chunk, len(list))]
			list = list[len(part):]
			g.Go(func() error {
				n, bad, foldErr := p.chunk(ctx, organization, part)
				mu.Lock()
				defer mu.Unlock()
				facts += n
				broken = append(broken, bad...)
				err = errors.Join(err, foldErr)
				return nil
			})
		}
	}
	_ = g.Wait() // errors are collected above, so that all are told
	return facts, broken, err
}

// chunk folds some runs until they have no more facts. If that fails each is
// folded alone, so that a run that cannot be folded does not hold up the others.
func (p *Projector) chunk(ctx context.Context, organization uuid.UUID, runs []uuid.UUID) (facts int, broken []RunRef, err error) {
	for todo := runs; len(todo) > 0; {
		n, more, err := p.step(ctx, organization, todo)
		facts += n
		if err == nil {
			todo = more
			continue
		}
		var away *control.UnavailableError
		if ctx.Err() != nil || errors.As(err, &away) || len(todo) == 1 {
			for _, run := range todo {
				broken = append(broken, RunRef{organization, run})
			}
			return facts, broken, fmt.Errorf("fold facts of %d runs, among them %s: %w", len(todo), todo[0], err)
		}
		var all error
		for _, run := range todo {
			n, bad, err := p.chunk(ctx, organization, []uuid.UUID{run})
			facts += n
			broken = append(broken, bad...)
			all = errors.Join(all, err)
		}
		return facts, broken, all
	}
	return facts, nil, nil
}

// step folds once, tells of endings, and only then confirms: what a crash in
// between leaves undone is done again.
func (p *Projector) step(ctx context.Context, organization uuid.UUID, runs []uuid.UUID) (int, []uuid.UUID, error) {
	out, err := p.Store.Project(ctx, organization, runs)
	if err != nil {
		return 0, nil, err
	}
	for _, pipeline := range out.Ended {
		if p.Ended == nil {
			break
		}
		if err := p.Ended(ctx, organization, pipeline); err != nil {
			return out.Facts, nil, fmt.Errorf("tell of an ended run of pipeline %s: %w", pipeline, err)
		}
	}
	through := make(map[RunRef]int64, len(out.Through))
	for run, n := range out.Through {
		through[RunRef{organization, run}] = n
	}
	return out.Facts, out.More, p.Relay.Confirm(ctx, through)
}
