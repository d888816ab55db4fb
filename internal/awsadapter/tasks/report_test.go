package tasks

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/dispatch"
)

func TestStartedBy(t *testing.T) {
	c := dispatch.Command{Organization: uuid.Must(uuid.NewV7()), Run: uuid.Must(uuid.NewV7()), Slot: 255, Sent: 1<<63 - 1, Compute: dispatch.Fargate}
	text := startedBy(c)
	require.LessOrEqual(t, len(text), 128, "as long as ECS takes")
	back, ok := parseStartedBy(text)
	require.True(t, ok)
	require.Equal(t, c, back)
}

func FuzzEndOf(f *testing.F) {
	f.Add([]byte(`{"lastStatus":"STOPPED","startedBy":"tranship/0195b3c8-0000-7000-8000-000000000001/0195b3c8-0000-7000-8000-000000000002/0/1","version":3,"containers":[{"exitCode":137}]}`))
	f.Add([]byte(`{"lastStatus":"STOPPED","startedBy":"ecs-svc/1"}`))
	f.Add([]byte(`{"containers":[{}]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, detail []byte) {
		e, ended, err := EndOf(json.RawMessage(detail))
		if ended && (err != nil || e.Compute != dispatch.Fargate) {
			t.Fatalf("an end that is none: %v %v", e, err)
		}
	})
}
