package operations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
)

// memory is a Store with a clock that tests move.
type memory struct {
	mu   sync.Mutex
	now  time.Time
	rows map[uuid.UUID]*Operation
	// lose makes Conclude forget what it was told: the process died.
	lose bool
}

func newMemory() *memory {
	return &memory{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), rows: map[uuid.UUID]*Operation{}}
}

func (m *memory) Now() time.Time                         { return m.now }
func (m *memory) Sleep(context.Context, time.Time) error { return nil }
func (m *memory) pass(d time.Duration)                   { m.now = m.now.Add(d) }
func (m *memory) only() Operation {
	for _, o := range m.rows {
		return *o
	}
	return Operation{}
}

func (m *memory) RecordOperation(_ context.Context, i Intent) (Operation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.rows {
		if o.Kind == i.Kind && o.Key == i.Key {
			if !bytes.Equal(o.Hash(), i.Hash()) {
				return Operation{}, &control.ConflictError{Code: "operation_key_reused"}
			}
			return *o, nil
		}
	}
	o := &Operation{ID: uuid.New(), Intent: i, State: Pending, NextAt: m.now}
	m.rows[o.ID] = o
	return *o, nil
}

func (m *memory) ClaimOperation(_ context.Context, r Ref, lease time.Duration) (Operation, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.rows[r.ID]
	if o == nil || !o.Open() || o.NextAt.After(m.now) {
		return Operation{}, false, nil
	}
	o.Attempts++
	o.NextAt = m.now.Add(lease)
	claimed := *o
	o.State = Unknown
	return claimed, true, nil
}

func (m *memory) ConcludeOperation(_ context.Context, o Operation, c Conclusion) (Operation, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := m.rows[o.ID]
	if m.lose {
		return o, false, errors.New("the process died")
	}
	if row.Attempts != o.Attempts || !row.Open() {
		return o, false, nil
	}
	row.State, row.Outcome, row.Error, row.NextAt = c.State, c.Outcome, c.Error, m.now.Add(c.Wait)
	if c.Over {
		row.NextAt, row.ConcludedAt = time.Time{}, m.now
	}
	return *row, true, nil
}

func (m *memory) OpenOperations(_ context.Context, _ uuid.UUID, kind, target string) (out []Ref, err error) {
	for _, o := range m.rows {
		if o.Open() && o.Kind == kind && o.Target == target {
			out = append(out, Ref{o.Organization, o.ID})
		}
	}
	return out, nil
}

func (m *memory) DueOperations(context.Context, []string, int) (out []Ref, err error) {
	for _, o := range m.rows {
		if o.Open() && !o.NextAt.After(m.now) {
			out = append(out, Ref{o.Organization, o.ID})
		}
	}
	return out, nil
}

func (m *memory) NextOperation(context.Context, []string) (time.Duration, bool, error) {
	for _, o := range m.rows {
		if o.Open() {
			return o.NextAt.Sub(m.now), true, nil
		}
	}
	return 0, false, nil
}

// door is an effect: a door that is to be open.
type door struct {
	open, done, read int
	// do answers Do after the door moved, or instead of it if before is set.
	do     error
	before bool
	// blind is ReadBack's error.
	blind error
}

func (d *door) Do(context.Context, Operation) (json.RawMessage, error) {
	d.done++
	if !d.before {
		d.open++
	}
	if d.do != nil {
		return nil, d.do
	}
	return json.RawMessage(`"open"`), nil
}

func (d *door) ReadBack(context.Context, Operation) (bool, json.RawMessage, error) {
	d.read++
	if d.blind != nil {
		return false, nil, d.blind
	}
	return d.open > 0, json.RawMessage(`"found open"`), nil
}

func start(t *testing.T, d *door) (*memory, *Runner, Intent) {
	t.Helper()
	m := newMemory()
	r := &Runner{Store: m, Effects: map[string]Effect{"door": d}, Clock: m, Log: slog.New(slog.DiscardHandler)}
	return m, r, Intent{Organization: uuid.New(), Kind: "door", Key: "k", Target: "front", Request: json.RawMessage(`{"open":true}`)}
}

func TestDoneOnce(t *testing.T) {
	d := &door{}
	m, r, i := start(t, d)
	for range 3 {
		o, err := r.Perform(t.Context(), i)
		require.NoError(t, err)
		require.Equal(t, Succeeded, o.State)
		require.JSONEq(t, `"open"`, string(o.Outcome))
		require.False(t, o.Open())
	}
	require.Equal(t, 1, d.done)
	next, err := r.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, next, "nothing is open")

	i.Request = json.RawMessage(`{"open":false}`)
	_, err = r.Perform(t.Context(), i)
	var conflict *control.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, 1, d.done)
	require.Len(t, m.rows, 1)
}

// Dead before Do: the intent is recorded, and the sweep does it.
func TestDeadBeforeDo(t *testing.T) {
	d := &door{}
	m, r, i := start(t, d)
	_, err := m.RecordOperation(t.Context(), i)
	require.NoError(t, err)
	_, err = r.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, Succeeded, m.only().State)
	require.Equal(t, 1, d.open)
	require.Zero(t, d.read)
}

// Dead after the claim and before Do: it is read back, not found, and done.
func TestDeadAfterClaim(t *testing.T) {
	d := &door{}
	m, r, i := start(t, d)
	o, err := m.RecordOperation(t.Context(), i)
	require.NoError(t, err)
	_, ok, err := m.ClaimOperation(t.Context(), Ref{i.Organization, o.ID}, lease)
	require.NoError(t, err)
	require.True(t, ok)
	next, err := r.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, m.now.Add(lease), next, "the claim stands")
	require.Zero(t, d.done)
	m.pass(lease)
	_, err = r.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, Succeeded, m.only().State)
	require.Equal(t, 1, d.read)
	require.Equal(t, 1, d.open)
}

// Dead after Do and before the conclusion: it is read back and found.
func TestDeadBeforeConclusion(t *testing.T) {
	d := &door{}
	m, r, i := start(t, d)
	m.lose = true
	_, err := r.Perform(t.Context(), i)
	require.Error(t, err)
	require.Equal(t, Unknown, m.only().State)
	m.lose = false
	m.pass(lease)
	require.NoError(t, r.Settle(t.Context(), i.Organization, "door", "front"))
	o := m.only()
	require.Equal(t, Succeeded, o.State)
	require.JSONEq(t, `"found open"`, string(o.Outcome))
	require.Equal(t, 1, d.done, "it is not done twice")
}

// A lost answer is no answer: whether it was done is found out later.
func TestUnknownOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		before bool
		done   int
	}{"it had happened": {false, 1}, "it had not": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			d := &door{do: errors.New("the connection broke"), before: c.before}
			m, r, i := start(t, d)
			o, err := r.Perform(t.Context(), i)
			require.NoError(t, err)
			require.Equal(t, Unknown, o.State)
			require.True(t, o.Open())
			require.Equal(t, "the connection broke", o.Error)
			again, err := r.Perform(t.Context(), i)
			require.NoError(t, err)
			require.Equal(t, Unknown, again.State, "it is not asked for again before its time")
			d.do, d.before = nil, false
			m.pass(firstWait)
			_, err = r.Run(t.Context())
			require.NoError(t, err)
			require.Equal(t, Succeeded, m.only().State)
			require.Equal(t, 1, d.open)
			require.Equal(t, c.done, d.done)
		})
	}
}

// What cannot be told is asked again, more and more rarely, and then given up as
// what it is.
func TestCannotTell(t *testing.T) {
	d := &door{do: errors.New("the connection broke"), blind: errors.New("the target is away")}
	m, r, i := start(t, d)
	o, err := r.Perform(t.Context(), i)
	require.NoError(t, err)
	began := m.now
	for o.Open() {
		m.pass(o.NextAt.Sub(m.now))
		_, err := r.Run(t.Context())
		require.NoError(t, err)
		o = m.only()
	}
	require.Equal(t, Unknown, o.State)
	require.Equal(t, maxAttempts, o.Attempts)
	require.Equal(t, 1, d.done, "nothing is done while it cannot be told whether it was")
	require.Equal(t, maxAttempts-1, d.read)
	require.Greater(t, m.now.Sub(began), 20*time.Minute)
	require.Less(t, m.now.Sub(began), time.Hour)
}

func TestRefusedIsFinal(t *testing.T) {
	d := &door{do: &RefusedError{errors.New("no such door")}, before: true}
	_, r, i := start(t, d)
	o, err := r.Perform(t.Context(), i)
	require.NoError(t, err)
	require.Equal(t, Failed, o.State)
	require.False(t, o.Open())
}

// What surely did not happen is done later without a read-back.
func TestLater(t *testing.T) {
	d := &door{do: &LaterError{After: time.Minute, Err: errors.New("too many requests")}, before: true}
	m, r, i := start(t, d)
	o, err := r.Perform(t.Context(), i)
	require.NoError(t, err)
	require.Equal(t, Pending, o.State)
	require.Equal(t, m.now.Add(time.Minute), o.NextAt)
	d.do, d.before = nil, false
	m.pass(time.Minute)
	_, err = r.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, Succeeded, m.only().State)
	require.Zero(t, d.read)
	require.Equal(t, 1, d.open)
}

// A look that lasted longer than its claim does not overwrite a later one's end.
func TestLateConclusionIsVoid(t *testing.T) {
	d := &door{}
	m, r, i := start(t, d)
	o, err := m.RecordOperation(t.Context(), i)
	require.NoError(t, err)
	late, ok, err := m.ClaimOperation(t.Context(), Ref{i.Organization, o.ID}, lease)
	require.NoError(t, err)
	require.True(t, ok)
	m.pass(lease)
	_, err = r.Run(t.Context())
	require.NoError(t, err)
	_, ok, err = m.ConcludeOperation(t.Context(), late, Conclusion{State: Failed, Over: true})
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, Succeeded, m.only().State)
}

func TestKindsOfOthersAreLeftAlone(t *testing.T) {
	d := &door{}
	m, r, i := start(t, d)
	i.Kind = "window"
	o, err := r.Perform(t.Context(), i)
	require.NoError(t, err)
	require.Equal(t, Pending, o.State)
	require.True(t, o.Open())
	require.Zero(t, d.done)
	require.Len(t, m.rows, 1)
}
