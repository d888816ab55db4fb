package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
)

// factsEvery is how often new facts are looked for.
const factsEvery = 300 * time.Millisecond

// factStream is the State of a run that also writes the run's facts as they are
// stored, one JSON object a line. It follows every run that this process starts.
type factStream struct {
	engine.State
	out     io.Writer
	enabled bool

	mu   sync.Mutex
	runs []followed
	err  error
	once sync.Once
	stop chan struct{}
	done chan struct{}
	// begun is closed when the first run is started.
	begun chan struct{}
}

type followed struct {
	id    uuid.UUID
	after int64
}

func newFactStream(state engine.State, out io.Writer, enabled bool) *factStream {
	return &factStream{State: state, out: out, enabled: enabled, stop: make(chan struct{}), done: make(chan struct{}), begun: make(chan struct{})}
}

// StartRun notes the run; of a resumed one only new facts are written.
func (f *factStream) StartRun(ctx context.Context, req engine.StartRequest) (engine.Run, bool, error) {
	run, resumed, err := f.State.StartRun(ctx, req)
	if err != nil {
		return run, resumed, err
	}
	one := followed{id: run.ID}
	if resumed && f.enabled {
		old, err := allFacts(ctx, f.State, run.ID)
		if err != nil {
			return run, resumed, err
		}
		if len(old) > 0 {
			one.after = old[len(old)-1].Number
		}
	}
	f.mu.Lock()
	f.runs = append(f.runs, one)
	f.mu.Unlock()
	f.once.Do(func() {
		close(f.begun)
		if f.enabled {
			go f.follow()
		} else {
			close(f.done)
		}
	})
	return run, resumed, nil
}

func (f *factStream) follow() {
	defer close(f.done)
	tick := time.NewTicker(factsEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			f.drain()
			return
		case <-tick.C:
			f.drain()
		}
	}
}

// drain writes what was stored since the last time. A failure is kept: it must
// not stop the run, whose facts stay in the state file.
func (f *factStream) drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.runs {
		for f.err == nil {
			facts, err := f.Facts(context.Background(), f.runs[i].id, f.runs[i].after, 500)
			if err != nil {
				f.err = fmt.Errorf("read facts: %w", err)
				return
			}
			if len(facts) == 0 {
				break
			}
			for _, fact := range facts {
				line, err := json.Marshal(fact)
				if err == nil {
					_, err = f.out.Write(append(line, '\n'))
				}
				if err != nil {
					f.err = fmt.Errorf("write facts: %w", err)
					return
				}
				f.runs[i].after = fact.Number
			}
		}
	}
}

// close writes the last facts and returns the first failure to write.
func (f *factStream) close() error {
	f.once.Do(func() { close(f.done) })
	close(f.stop)
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
