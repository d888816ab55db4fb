package pgconf_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	state := func(code string) error {
		return fmt.Errorf("do it: %w", &pgconn.PgError{Code: code, Message: "m", Detail: "the detail"})
	}
	for _, c := range []struct {
		err  error
		want engine.Class
	}{
		{state("40001"), engine.Retryable}, {state("40P01"), engine.Retryable}, {state("08006"), engine.Retryable},
		{state("53100"), engine.Retryable}, {state("53300"), engine.Retryable}, {state("53400"), engine.Permanent},
		{state("57P01"), engine.Retryable}, {state("57P03"), engine.Retryable}, {state("57P04"), engine.Permanent},
		{state("57014"), engine.Retryable}, {state("55P03"), engine.Retryable}, {state("58030"), engine.Retryable},
		{state("42501"), engine.Permanent}, {state("42P01"), engine.Permanent}, {state("22012"), engine.Permanent},
		{state("23505"), engine.Permanent}, {state("25P02"), engine.Bug}, {state(""), engine.Permanent},
		{io.ErrUnexpectedEOF, engine.Retryable}, {syscall.ECONNRESET, engine.Retryable},
		{&net.OpError{Op: "read", Err: syscall.EPIPE}, engine.Retryable}, {net.ErrClosed, engine.Retryable},
		{&net.DNSError{IsNotFound: true}, engine.Permanent}, {&net.DNSError{IsTimeout: true}, engine.Retryable},
		{context.DeadlineExceeded, engine.Retryable}, {errors.New("who knows"), engine.Permanent},
		{fmt.Errorf("x: %w", engine.Bugf("b")), engine.Bug},
	} {
		got := pgconf.Classify(c.err)
		require.Equal(t, c.want, engine.ClassOf(got), "%v", c.err)
		require.ErrorIs(t, got, c.err)
	}
	require.NoError(t, pgconf.Classify(nil))
	require.Equal(t, context.Canceled, pgconf.Classify(context.Canceled))
	require.ErrorIs(t, pgconf.Classify(engine.ErrSnapshotLost), engine.ErrSnapshotLost)
	require.ErrorContains(t, pgconf.Classify(state("42501")), "GRANT")
	require.ErrorContains(t, pgconf.Classify(state("23505")), "the detail")
	require.True(t, pgconf.IsState(state("42501"), "42501"))
	require.False(t, pgconf.IsState(io.EOF, "42501"))
}
