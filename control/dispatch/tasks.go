package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/operations"
	"github.com/tranship-io/tranship/control/runs"
)

// The kinds of operations that start and stop containers.
const (
	KindTask     = "task"
	KindStopTask = "task.stop"
)

// Tasks starts containers for attempts. Errors are those of [operations.Effect].
type Tasks interface {
	// Run starts one, and returns its id. With the same token it starts none but
	// returns the id of the one that it started before.
	Run(ctx context.Context, c Command, token string) (id string, err error)
	// Stop asks one to end; one that has ended or is not known is no error.
	Stop(ctx context.Context, id, reason string) error
	// Ended returns those of some that have ended or are not known any more.
	Ended(ctx context.Context, running []Task) ([]TaskEnd, error)
}

// Task is a container that was started for a command.
type Task struct {
	Command
	ID string
}

// TaskEnd is a container's end.
type TaskEnd struct {
	Task
	// Version grows with each report about a container.
	Version int64
	// Reason is the platform's.
	Reason string
	// Blameless: the platform took the container away or had no place for it, which
	// says nothing of the attempt.
	Blameless bool
}

// LiveTask is a container that is not known to have ended.
type LiveTask struct {
	Task
	// Wanted tells whether somebody still waits for it or it has its slot's lease.
	Wanted bool
}

// TaskStore remembers containers.
type TaskStore interface {
	// OfferStands tells whether a command's offer still waits for its worker.
	OfferStands(ctx context.Context, c Command) (bool, error)
	// TaskStarted remembers one, unless its end is known already, and gives its offer
	// the time that it takes to start.
	TaskStarted(ctx context.Context, t Task) error
	// TaskEnded remembers the end of one; what is known already, or older, changes
	// nothing. If its worker never had the slot's lease, the offer is taken back and
	// what decide says is applied to the run, in the same transaction.
	TaskEnded(ctx context.Context, e TaskEnd, decide func(*runs.Run) runs.Change) error
	// LiveTasks returns containers that nobody wants any more, and those that nobody
	// has looked at for so long.
	LiveTasks(ctx context.Context, age time.Duration, limit int) ([]LiveTask, error)
	// TaskLooked notes that somebody looked.
	TaskLooked(ctx context.Context, t Task) error
}

// Starter starts containers; it is the effect of KindTask operations.
type Starter struct {
	Tasks  Tasks
	Store  TaskStore
	Runner *operations.Runner
}

var _ operations.Effect = (*Starter)(nil)

// Start starts a container for a command, once. What fails for a while (no
// capacity, too many calls) is tried again by the sweep until the offer expires; it
// is then offered anew, and never counts as a failed attempt.
func (s *Starter) Start(ctx context.Context, c Command) (operations.Operation, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return operations.Operation{}, fmt.Errorf("encode %s: %w", c, err)
	}
	return s.Runner.Perform(ctx, operations.Intent{Organization: c.Organization, Kind: KindTask, Key: c.key(), Target: c.Run.String(), Request: body})
}

func (c Command) key() string { return fmt.Sprintf("%s/%d/%d", c.Run, c.Slot, c.Sent) }

// token is a command's idempotency token at the platform.
func (c Command) token() string {
	sum := sha256.Sum256([]byte(c.key()))
	return hex.EncodeToString(sum[:16])
}

// started is the outcome of a KindTask operation.
type started struct {
	Task string `json:"task,omitempty"`
	// Void: the offer was gone before it began.
	Void bool `json:"void,omitempty"`
}

// Do implements [operations.Effect].
func (s *Starter) Do(ctx context.Context, o operations.Operation) (json.RawMessage, error) {
	var c Command
	if err := json.Unmarshal(o.Request, &c); err != nil {
		return nil, &operations.RefusedError{Err: fmt.Errorf("operation %s: decode the command: %w", o.ID, err)}
	}
	c.Organization = o.Organization
	stands, err := s.Store.OfferStands(ctx, c)
	if err != nil {
		return nil, &operations.LaterError{Err: err}
	}
	if !stands {
		return json.Marshal(started{Void: true})
	}
	id, err := s.Tasks.Run(ctx, c, c.token())
	var refused *operations.RefusedError
	if errors.As(err, &refused) {
		// It would be refused each time: after some, the run fails and says why.
		return nil, errors.Join(err, ended(ctx, s.Store, TaskEnd{Task: Task{Command: c}, Reason: err.Error()}))
	}
	if err != nil {
		return nil, err
	}
	if err := s.Store.TaskStarted(ctx, Task{c, id}); err != nil {
		return nil, err
	}
	return json.Marshal(started{Task: id})
}

// ReadBack implements [operations.Effect]. To ask again with the same token is the
// read-back: it gives the id of the container that was started, if one was.
func (*Starter) ReadBack(context.Context, operations.Operation) (bool, json.RawMessage, error) {
	return false, nil, nil
}

// Stopper stops containers; it is the effect of KindStopTask operations.
type Stopper struct{ Tasks Tasks }

var _ operations.Effect = (*Stopper)(nil)

// Do implements [operations.Effect].
func (s *Stopper) Do(ctx context.Context, o operations.Operation) (json.RawMessage, error) {
	return json.RawMessage(`{}`), s.Tasks.Stop(ctx, o.Target, "its run does not want it any more")
}

// ReadBack implements [operations.Effect]: to stop twice is to stop.
func (*Stopper) ReadBack(context.Context, operations.Operation) (bool, json.RawMessage, error) {
	return false, nil, nil
}

// TaskStopped settles what the end of a container means: nothing if its worker had
// the lease, whose end the sweep sees; an interruption if it never had (P24).
func TaskStopped(ctx context.Context, store TaskStore, e TaskEnd) error { return ended(ctx, store, e) }

func ended(ctx context.Context, store TaskStore, e TaskEnd) error {
	err := store.TaskEnded(ctx, e, func(r *runs.Run) runs.Change { return runs.NeverBegan(r, e.Slot, e.ID, e.Reason, !e.Blameless) })
	if err != nil {
		return fmt.Errorf("settle the end of the container of %s: %w", e.Command, err)
	}
	return nil
}

const (
	// lookAge is how long a report about a container is waited for before it is
	// looked at.
	lookAge   = 5 * time.Minute
	lookBatch = 100
)

// TaskSweeper is the sweep's task that stops containers which nobody wants, and
// notices the ends of those of which no report came.
type TaskSweeper struct {
	Tasks  Tasks
	Store  TaskStore
	Runner *operations.Runner
	Clock  control.Clock
}

// Name names the task.
func (s *TaskSweeper) Name() string { return "tasks" }

// Run implements the sweep's task.
func (s *TaskSweeper) Run(ctx context.Context) (time.Time, error) {
	live, err := s.Store.LiveTasks(ctx, lookAge, lookBatch)
	if err != nil {
		return time.Time{}, fmt.Errorf("find containers: %w", err)
	}
	if len(live) == 0 {
		return time.Time{}, nil
	}
	running := make([]Task, len(live))
	for i, t := range live {
		running[i] = t.Task
	}
	ends, err := s.Tasks.Ended(ctx, running)
	if err != nil {
		return time.Time{}, fmt.Errorf("look at containers: %w", err)
	}
	over := map[string]bool{}
	var errs []error
	for _, e := range ends {
		over[e.ID] = true
		errs = append(errs, ended(ctx, s.Store, e))
	}
	for _, t := range live {
		if over[t.ID] {
			continue
		}
		errs = append(errs, s.Store.TaskLooked(ctx, t.Task))
		if !t.Wanted {
			_, err := s.Runner.Perform(ctx, operations.Intent{Organization: t.Organization, Kind: KindStopTask, Key: t.ID, Target: t.ID, Request: json.RawMessage(`{}`)})
			errs = append(errs, err)
		}
	}
	return s.Clock.Now().Add(lookAge), errors.Join(errs...)
}
