package pgsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/connectors/postgres/pgoutput"
	"github.com/tranship-io/tranship/engine"
)

// slotWait bounds the wait for a slot that a dead session of ours still holds (P5).
const slotWait = 30 * time.Second

// walConn is a replication connection that streams a slot. While a Read uses it,
// only that sends and receives; acknowledgements wait for it then.
type walConn struct {
	pc *pgconn.PgConn

	mu      sync.Mutex
	reading bool
	// confirmed is what the server may forget, told what it was told of that, at.
	confirmed, told pgoutput.LSN
	at              time.Time

	// resume is where the last Read stopped between two transactions, if it did: one
	// that begins there goes on with the connection, instead of letting the server
	// read its log again from where it has to. tables is what the server has told.
	resume *streamPosition
	tables map[uint32]*pgoutput.Table
}

// openStream begins to stream a slot after a position.
func (s *Session) openStream(ctx context.Context, d *streamDescriptor, split engine.Split, claim int64, from pgoutput.LSN) (*walConn, error) {
	conn, err := pgconf.Connect(ctx, s.cfg, s.opt, pgconf.Role{Name: split.ID, Claim: claim, Replication: true})
	if err != nil {
		return nil, err
	}
	w := &walConn{pc: conn.PgConn(), confirmed: from, told: from, at: time.Now(), reading: true}
	begun := w.at
	ender := readerConn{pc: w.pc}
	if err := ender.endOlderClaims(ctx, s.opt.RunID, split.ID, claim); err != nil {
		w.close()
		return nil, err
	}
	// A slow destination must not look like a dead client; one that is gone is
	// noticed by keepalives.
	if _, err := w.pc.Exec(ctx, "SET wal_sender_timeout = '10min'").ReadAll(); err != nil {
		w.close()
		return nil, pgconf.Classify(err)
	}
	start := fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s, binary 'true', messages 'true')",
		pgconf.QuoteIdent(d.Slot), from, pgconf.QuoteLiteral(pgconf.QuoteIdent(d.Publication)))
	ended := false
	for {
		err := w.start(ctx, start)
		if err == nil {
			return w, nil
		}
		if pgconf.IsState(err, "55006") && time.Since(begun) > slotWait && !ended {
			if ended, err = endHolder(ctx, &ender, d.Slot); err == nil && ended {
				begun = time.Now()
				continue
			}
			if err == nil {
				err = engine.Permanentf("end the other consumer, or have it use a slot of its own", "another client streams it")
			}
		}
		if !pgconf.IsState(err, "55006") || time.Since(begun) > slotWait {
			w.close()
			return nil, pgconf.Classify(fmt.Errorf("stream the replication slot %q from %s: %w", d.Slot, from, err))
		}
		// Another session has it: one of ours that just ends, or another consumer.
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			w.close()
			return nil, context.Cause(ctx)
		}
	}
}

// endHolder ends the session that streams a slot if it is one of ours, of whichever
// run: a dead one can hold it past all timeouts (P5). A run that is alive is not
// harmed: it goes on after the position that is stored.
func endHolder(ctx context.Context, conn *readerConn, slot string) (ended bool, err error) {
	res, err := conn.results(ctx, fmt.Sprintf(`SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_replication_slots s
JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND a.usename = current_user AND pg_catalog.starts_with(a.application_name, %s)`,
		pgconf.QuoteLiteral(slot), pgconf.QuoteLiteral(pgconf.AppNames)))
	if err != nil {
		return false, fmt.Errorf("end the session that holds the replication slot: %w", err)
	}
	return len(res) == 1 && len(res[0].Rows) == 1 && string(res[0].Rows[0][0]) == "t", nil
}

// start sends the command and waits for the stream to begin.
func (w *walConn) start(ctx context.Context, sql string) error {
	w.pc.Frontend().SendQuery(&pgproto3.Query{String: sql})
	if err := w.pc.Frontend().Flush(); err != nil {
		return err
	}
	var failed error
	for {
		msg, err := w.pc.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		switch msg := msg.(type) {
		case *pgproto3.CopyBothResponse:
			return nil
		case *pgproto3.ErrorResponse:
			failed = pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.ReadyForQuery:
			if failed == nil {
				failed = errors.New("the server did not begin to stream")
			}
			return failed
		}
	}
}

// walData is a piece of the log, or only where the server is.
type walData struct {
	// data is a message of the plugin's; nil for a keepalive.
	data []byte
	// end is up to where the server has sent everything.
	end   pgoutput.LSN
	reply bool
}

// next returns what the server sends next; ok false if nothing came in time.
func (w *walConn) next(wait time.Duration) (out walData, ok bool, err error) {
	if err := w.pc.Conn().SetReadDeadline(time.Now().Add(wait)); err != nil {
		return out, false, err
	}
	msg, err := w.pc.ReceiveMessage(context.Background())
	if err != nil {
		// pgconn keeps what it has received of a message that is not whole yet.
		if pgconn.Timeout(err) {
			return out, false, nil
		}
		return out, false, err
	}
	switch msg := msg.(type) {
	case *pgproto3.CopyData:
		switch {
		case len(msg.Data) >= 25 && msg.Data[0] == 'w':
			// Where the message was written, and then the end that is known.
			return walData{data: msg.Data[25:], end: pgoutput.LSN(binary.BigEndian.Uint64(msg.Data[1:]))}, true, nil
		case len(msg.Data) == 18 && msg.Data[0] == 'k':
			return walData{end: pgoutput.LSN(binary.BigEndian.Uint64(msg.Data[1:])), reply: msg.Data[17] != 0}, true, nil
		}
		return out, false, engine.Bugf("a message of the replication stream has an unknown form (%d bytes)", len(msg.Data))
	case *pgproto3.ErrorResponse:
		return out, false, pgconn.ErrorResponseToPgError(msg)
	case *pgproto3.CopyDone:
		return out, false, engine.Retryablef("the server ended the replication stream")
	}
	return walData{}, true, nil
}

// status tells the server what is durable (invariant 3), and that we live; ask
// makes it tell at once where it is. The caller holds mu.
func (w *walConn) status(ask bool) error {
	b := append(make([]byte, 0, 34), 'r')
	for range 3 {
		// Written, flushed, applied: for us nothing counts but what is stored.
		b = binary.BigEndian.AppendUint64(b, uint64(w.confirmed))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(time.Now().UnixMicro()-946684800*1e6))
	if ask {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	w.at, w.told = time.Now(), w.confirmed
	w.pc.Frontend().Send(&pgproto3.CopyData{Data: b})
	return w.pc.Frontend().Flush()
}

// tell is status for the Read that uses the connection, if it is due.
func (w *walConn) tell(now, ask bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !now && w.told == w.confirmed && time.Since(w.at) < statusTime {
		return nil
	}
	return w.status(ask)
}

// confirm takes an acknowledgement.
func (w *walConn) confirm(at pgoutput.LSN) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.confirmed = max(w.confirmed, at)
	if w.reading || w.told == w.confirmed {
		return nil
	}
	return w.status(false)
}

// release ends a Read's use of the connection.
func (w *walConn) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading = false
	if w.told != w.confirmed {
		_ = w.status(false) // if it can't be told now, the next acknowledgement tells it
	}
}

func (w *walConn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = w.pc.Close(ctx) // the server ends the session either way
}
