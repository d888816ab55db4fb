package blackbox

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/stretchr/testify/require"
)

// handovers is how many a run must make at least; TRANSHIP_HANDOVERS replaces it.
const handovers = 12

// TestBoundedAttempts is not parallel: it shortens every attempt.
func TestBoundedAttempts(t *testing.T) {
	want := handovers
	if text := os.Getenv("TRANSHIP_HANDOVERS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err, "TRANSHIP_HANDOVERS")
		want = n
	}
	functions := lambda.NewFromConfig(rigWorld.aws())
	timeout := func(seconds int32) {
		_, err := functions.UpdateFunctionConfiguration(t.Context(), &lambda.UpdateFunctionConfigurationInput{
			FunctionName: aws.String("tranship-worker"), Timeout: &seconds,
		})
		require.NoError(t, err)
	}
	was, err := functions.GetFunctionConfiguration(t.Context(), &lambda.GetFunctionConfigurationInput{FunctionName: aws.String("tranship-worker")})
	require.NoError(t, err)
	timeout(15)
	t.Cleanup(func() {
		_, err := functions.UpdateFunctionConfiguration(context.WithoutCancel(t.Context()), &lambda.UpdateFunctionConfigurationInput{
			FunctionName: aws.String("tranship-worker"), Timeout: was.Timeout,
		})
		require.NoError(t, err)
	})

	// An attempt of 10 seconds moves up to 5,500 rows at 2 ms each. A run of so many
	// attempts would else go on in containers.
	p := admin(t).pipe((want+2)*5_500, settings{slow: true, service: map[string]any{"compute": "lambda"}, pipeline: map[string]any{"epoch_size": "64KiB", "split_size": "1MiB"}})
	id := p.start()
	p.complete(id, 25*time.Minute)
	facts := p.facts(id)
	made := count(facts, "attempt.handed_over")
	require.GreaterOrEqual(t, made, want)
	gaps := handoverGaps(t, facts)
	t.Logf("%d hand-overs, %d interruptions; gap to the next attempt: median %s, longest %s", made, count(facts, "attempt.interrupted"), gaps[len(gaps)/2], gaps[len(gaps)-1])
}

// handoverGaps are the times from each hand-over to the next attempt's start, sorted.
func handoverGaps(t *testing.T, facts []document) []time.Duration {
	t.Helper()
	var gaps []time.Duration
	var handed time.Time
	for _, f := range facts {
		at, err := time.Parse(time.RFC3339Nano, f.text("at"))
		require.NoError(t, err)
		switch f.text("type") {
		case "attempt.handed_over":
			handed = at
		case "attempt.started":
			if !handed.IsZero() {
				gaps = append(gaps, at.Sub(handed))
				handed = time.Time{}
			}
		}
	}
	slices.Sort(gaps)
	require.NotEmpty(t, gaps)
	return gaps
}
