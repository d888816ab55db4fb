// Package cloudtest gives tests of functions an installation on emulated AWS: a
// database, queues, schedules, keys, and the environment that names them.
package cloudtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/internal/awsadapter/parameter"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/pgtest"
	"github.com/tranship-io/tranship/localstack/rig"
)

// Installation is what a test's functions share.
type Installation struct {
	t testing.TB
	// Env is the environment of every function.
	Env map[string]string
	// URL is the database's, of a superuser; Target that of another one, for the ends
	// of pipelines.
	URL, Target string
	AWS         aws.Config
}

// New makes an installation with an empty database.
func New(t testing.TB) *Installation {
	t.Helper()
	server := pgtest.Shared(t)
	name := rig.Name(t)
	i := &Installation{t: t, AWS: rig.Shared(t).AWS(), URL: pgtest.NewDatabase(t, server), Target: pgtest.NewDatabase(t, server), Env: map[string]string{
		"TRANSHIP_NAME": name, "TRANSHIP_SCHEDULE_GROUP": name, "TRANSHIP_SWEEP_SCHEDULE": name + "-sweep", "TRANSHIP_LEASE": "5s",
		"TRANSHIP_SIGNING_PARAMETER": "/" + name + "/signing", "TRANSHIP_FIRST_KEY_PARAMETER": "/" + name + "/first-key",
		"TRANSHIP_SCHEDULE_ROLE": "arn:aws:iam::000000000000:role/r", "LOG_LEVEL": "debug",
	}}
	for _, f := range []string{"COMPILE", "SWEEP", "INSPECT"} {
		i.Env["TRANSHIP_"+f+"_FUNCTION"] = "arn:aws:lambda:us-east-1:000000000000:function:" + name + "-" + strings.ToLower(f)
	}
	i.database()
	for variable, queue := range map[string]string{"ATTEMPTS": "attempts", "TASKS": "tasks", "DELIVERIES": "deliveries", "FACTS": "facts.fifo", "DEAD": "dead"} {
		i.Env["TRANSHIP_"+variable+"_QUEUE"] = i.queue(name + "-" + queue)
	}
	key, err := kms.NewFromConfig(i.AWS).CreateKey(t.Context(), &kms.CreateKeyInput{})
	require.NoError(t, err)
	i.Env["TRANSHIP_KMS_KEY"] = aws.ToString(key.KeyMetadata.Arn)
	i.schedule(name)
	return i
}

// database makes the secret that functions log in with, and the URL without it.
func (i *Installation) database() {
	u, err := url.Parse(i.URL)
	require.NoError(i.t, err)
	password, _ := u.User.Password()
	text, err := json.Marshal(map[string]string{"username": u.User.Username(), "password": password})
	require.NoError(i.t, err)
	name := i.Env["TRANSHIP_NAME"]
	made, err := secretsmanager.NewFromConfig(i.AWS).CreateSecret(i.t.Context(), &secretsmanager.CreateSecretInput{Name: &name, SecretString: aws.String(string(text))})
	require.NoError(i.t, err)
	i.Env["TRANSHIP_DATABASE_SECRET"] = aws.ToString(made.ARN)
	u.User = nil
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	i.Env["TRANSHIP_DATABASE"] = u.String()
}

func (i *Installation) queue(name string) string {
	attributes := map[string]string{}
	if strings.HasSuffix(name, ".fifo") {
		attributes["FifoQueue"] = "true"
	}
	made, err := sqs.NewFromConfig(i.AWS).CreateQueue(i.t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	require.NoError(i.t, err)
	return aws.ToString(made.QueueUrl)
}

func (i *Installation) schedule(name string) {
	client := scheduler.NewFromConfig(i.AWS)
	_, err := client.CreateScheduleGroup(i.t.Context(), &scheduler.CreateScheduleGroupInput{Name: &name})
	require.NoError(i.t, err)
	_, err = client.CreateSchedule(i.t.Context(), &scheduler.CreateScheduleInput{
		GroupName: &name, Name: aws.String(name + "-sweep"), ScheduleExpression: aws.String("rate(1 minute)"), State: types.ScheduleStateDisabled,
		FlexibleTimeWindow: &types.FlexibleTimeWindow{Mode: types.FlexibleTimeWindowModeOff},
		Target:             &types.Target{Arn: aws.String(i.Env["TRANSHIP_SWEEP_FUNCTION"]), RoleArn: aws.String(i.Env["TRANSHIP_SCHEDULE_ROLE"])},
	})
	require.NoError(i.t, err)
}

// Sweeping tells whether the sweep's schedule is on.
func (i *Installation) Sweeping() bool {
	i.t.Helper()
	s, err := scheduler.NewFromConfig(i.AWS).GetSchedule(i.t.Context(), &scheduler.GetScheduleInput{
		GroupName: aws.String(i.Env["TRANSHIP_SCHEDULE_GROUP"]), Name: aws.String(i.Env["TRANSHIP_SWEEP_SCHEDULE"])})
	require.NoError(i.t, err)
	return s.State == types.ScheduleStateEnabled
}

// Function begins a function in the installation's environment, with changes.
func (i *Installation) Function(name string, changes ...string) *cloud.Function {
	i.t.Helper()
	env := map[string]string{}
	for k, v := range i.Env {
		env[k] = v
	}
	for j := 0; j+1 < len(changes); j += 2 {
		env[changes[j]] = changes[j+1]
	}
	f, err := cloud.Begin(i.t.Context(), name, func(n string) (string, bool) { v, ok := env[n]; return v, ok }, logTo{i.t})
	require.NoError(i.t, err)
	f.AWS = i.AWS
	return f
}

// Receive takes what waits in a queue, as an event; variable names the queue.
func (i *Installation) Receive(variable string) events.SQSEvent {
	i.t.Helper()
	client, url := sqs.NewFromConfig(i.AWS), i.Env[variable]
	out, err := client.ReceiveMessage(i.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10,
		MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{"All"}})
	require.NoError(i.t, err)
	var e events.SQSEvent
	for _, m := range out.Messages {
		_, err := client.DeleteMessage(i.t.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle})
		require.NoError(i.t, err)
		e.Records = append(e.Records, events.SQSMessage{MessageId: aws.ToString(m.MessageId), Body: aws.ToString(m.Body), Attributes: m.Attributes})
	}
	return e
}

// Message makes an event of one message.
func Message(body string) events.SQSEvent {
	return events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: body}}}
}

func signingKey() []byte { return bytes.Repeat([]byte{7}, 32) }

// SigningParameter makes the parameter of the key that signs API keys.
func (i *Installation) SigningParameter() {
	i.t.Helper()
	_, err := parameter.New(i.AWS).Make(i.t.Context(), i.Env["TRANSHIP_SIGNING_PARAMETER"], base64.StdEncoding.EncodeToString(signingKey()), "")
	require.NoError(i.t, err)
}

// Query reads one value of the installation's database, or of another one.
func (i *Installation) Query(database, sql string, into any, args ...any) {
	i.t.Helper()
	conn, err := pgx.Connect(i.t.Context(), database)
	require.NoError(i.t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(i.t.Context())) }()
	require.NoError(i.t, conn.QueryRow(i.t.Context(), sql, args...).Scan(into))
}

// Exec runs a statement in a database.
func (i *Installation) Exec(database, sql string) {
	i.t.Helper()
	conn, err := pgx.Connect(i.t.Context(), database)
	require.NoError(i.t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(i.t.Context())) }()
	_, err = conn.Exec(i.t.Context(), sql)
	require.NoError(i.t, err)
}

// Invocation is the context of an invocation that may take so long.
func (i *Installation) Invocation(timeout time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(i.t.Context(), timeout)
	i.t.Cleanup(cancel)
	return ctx
}

type logTo struct{ t testing.TB }

func (l logTo) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// Main runs a package's tests and ends what they share.
func Main(m *testing.M) {
	code := m.Run()
	if err := errors.Join(rig.StopShared(), pgtest.StopShared()); err != nil {
		fmt.Fprintln(os.Stderr, "cloudtest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
