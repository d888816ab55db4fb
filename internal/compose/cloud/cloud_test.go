package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/stretchr/testify/require"
)

func env(vars map[string]string) *Env {
	return NewEnv(func(name string) (string, bool) { v, ok := vars[name]; return v, ok })
}

func TestEnvTellsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	e := env(map[string]string{"A": " x ", "D": "soon", "N": "-3", "J": `{"b":1}`, "OK": "15s", "M": "7"})
	require.Equal(t, "x", e.Need("A"))
	require.Equal(t, 15*time.Second, e.Duration("OK", 0))
	require.Equal(t, 7, e.Int("M", 1))
	require.Equal(t, "usual", e.Get("NONE", "usual"))
	require.NoError(t, e.Err())
	e.Need("MISSING")
	e.Duration("D", time.Second)
	e.Int("N", 1)
	e.JSON("J", &struct{ A int }{})
	for _, name := range []string{"MISSING", "D", "N", "J"} {
		require.ErrorContains(t, e.Err(), "the environment variable "+name+":")
	}
}

func TestBeginNamesTheInstallation(t *testing.T) {
	t.Parallel()
	f, err := Begin(t.Context(), "worker", func(string) (string, bool) { return "", false }, &bytes.Buffer{})
	require.NoError(t, err)
	require.ErrorContains(t, f.Env.Err(), "TRANSHIP_NAME")
}

func TestLogHasTheRequest(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := newLog(&out, slog.LevelInfo, "worker").With("run", "r")
	log.InfoContext(lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "req"}), "hello")
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, "req", line["request_id"])
	require.Equal(t, "r", line["run"])
	require.Equal(t, "worker", line["function"])
}

func TestMetricsAreEmbedded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	m := &Metrics{w: &out, installation: "t", function: "worker", now: func() time.Time { return time.UnixMilli(7) }}
	m.Emit(Value{"Attempts", Count, 2}, Value{"Time", Milliseconds, 1.5})
	require.JSONEq(t, `{"_aws":{"Timestamp":7,"CloudWatchMetrics":[{"Namespace":"Tranship","Dimensions":[["installation","function"]],
		"Metrics":[{"Name":"Attempts","Unit":"Count"},{"Name":"Time","Unit":"Milliseconds"}]}]},
		"installation":"t","function":"worker","Attempts":2,"Time":1.5}`, out.String())
}

type grave struct {
	bodies []string
	err    error
}

func (g *grave) Bury(_ context.Context, body, group, reason string) error {
	if g.err == nil {
		g.bodies = append(g.bodies, fmt.Sprint(body, "|", group, "|", reason != ""))
	}
	return g.err
}

func TestBatch(t *testing.T) {
	t.Parallel()
	type message struct{ N int }
	dead := &grave{}
	b := &Batch[message]{Dead: dead, Log: slog.New(slog.DiscardHandler), Check: func(m message) error {
		if m.N == 0 {
			return errors.New("n is missing")
		}
		return nil
	}}
	record := func(id, body string) events.SQSMessage {
		return events.SQSMessage{MessageId: id, Body: body, Attributes: map[string]string{"MessageGroupId": "g"}}
	}
	event := events.SQSEvent{Records: []events.SQSMessage{record("a", `{"N":1}`), record("b", `nonsense`), record("c", `{}`), record("d", `{"N":2}`)}}
	answer := b.Handle(t.Context(), event, func(_ context.Context, m []message) []error {
		require.Equal(t, []message{{1}, {2}}, m)
		return []error{nil, errors.New("later")}
	})
	require.Equal(t, []events.SQSBatchItemFailure{{ItemIdentifier: "d"}}, answer.BatchItemFailures)
	require.Equal(t, []string{"nonsense|g|true", "{}|g|true"}, dead.bodies)

	dead.err = errors.New("away")
	event.Records = event.Records[1:2]
	never := func(context.Context, []message) []error { t.Error("there is no message"); return nil }
	answer = b.Handle(t.Context(), event, never)
	require.Equal(t, []events.SQSBatchItemFailure{{ItemIdentifier: "b"}}, answer.BatchItemFailures, "what could not be buried comes again")

	text, err := json.Marshal(b.Handle(t.Context(), events.SQSEvent{}, never))
	require.NoError(t, err)
	require.JSONEq(t, `{"batchItemFailures":[]}`, string(text), "a list, never null")
}
