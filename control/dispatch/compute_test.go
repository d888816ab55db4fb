package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/dispatch"
)

func TestChoose(t *testing.T) {
	aws := dispatch.Platform{Lambda: true, Fargate: true, LambdaMemory: 1 << 30}
	for name, c := range map[string]struct {
		platform dispatch.Platform
		demand   dispatch.Demand
		want     string
	}{
		"a process takes all":             {dispatch.Platform{}, dispatch.Demand{Compute: dispatch.Fargate}, ""},
		"a small run":                     {aws, dispatch.Demand{}, dispatch.Lambda},
		"as the pipeline says":            {aws, dispatch.Demand{Compute: dispatch.Fargate}, dispatch.Fargate},
		"as the pipeline says, lambda":    {aws, dispatch.Demand{Compute: dispatch.Lambda, Attempts: 100, LastBytes: 1 << 50}, dispatch.Lambda},
		"auto is no wish":                 {aws, dispatch.Demand{Compute: dispatch.Auto}, dispatch.Lambda},
		"no Fargate: auto is lambda":      {dispatch.Platform{Lambda: true}, dispatch.Demand{Attempts: 100, LastBytes: 1 << 50, Memory: 1 << 40}, dispatch.Lambda},
		"more memory than functions have": {aws, dispatch.Demand{Memory: 1<<30 + 1}, dispatch.Fargate},
		"as much memory":                  {aws, dispatch.Demand{Memory: 1 << 30}, dispatch.Lambda},
		"the usual bound of memory":       {dispatch.Platform{Lambda: true, Fargate: true}, dispatch.Demand{Memory: 8 << 30}, dispatch.Fargate},
		"the last run was long":           {aws, dispatch.Demand{LastTime: time.Hour}, dispatch.Fargate},
		"the last run was short":          {aws, dispatch.Demand{LastTime: 44 * time.Minute, LastBytes: 99 << 30}, dispatch.Lambda},
		"the last run was large":          {aws, dispatch.Demand{LastBytes: 100 << 30}, dispatch.Fargate},
		"it needed many attempts":         {aws, dispatch.Demand{Attempts: 5}, dispatch.Fargate},
		"it goes on for long":             {aws, dispatch.Demand{Age: time.Hour, Attempts: 2}, dispatch.Fargate},
		"a cancel waits for no container": {aws, dispatch.Demand{Compute: dispatch.Fargate, Cancel: true}, dispatch.Lambda},
		"nothing but Fargate":             {dispatch.Platform{Fargate: true}, dispatch.Demand{Cancel: true}, dispatch.Fargate},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.platform.Choose(c.demand)) })
	}
}

func TestCheckCompute(t *testing.T) {
	lambda := dispatch.Platform{Lambda: true}
	require.ErrorContains(t, lambda.Check("service.compute", dispatch.Fargate), "service.compute: this installation has no Fargate (deploy")
	require.ErrorContains(t, lambda.Check("service.compute", dispatch.Process), "no processes")
	for _, compute := range []string{"", dispatch.Auto, dispatch.Lambda} {
		require.NoError(t, lambda.Check("", compute))
	}
	require.NoError(t, dispatch.Platform{Lambda: true, Fargate: true}.Check("", dispatch.Fargate))
	for _, compute := range []string{dispatch.Process, dispatch.Lambda, dispatch.Fargate} {
		require.NoError(t, dispatch.Platform{}.Check("", compute), "processes take every attempt")
	}
}

// kept is a queue that keeps what it is sent.
type kept []dispatch.Command

func (k *kept) Send(_ context.Context, c dispatch.Command) error {
	*k = append(*k, c)
	return nil
}

func TestRouter(t *testing.T) {
	var functions, containers kept
	r := dispatch.Router{Lambda: &functions, Fargate: &containers}
	for _, compute := range []string{dispatch.Lambda, "", dispatch.Fargate} {
		require.NoError(t, r.Send(t.Context(), dispatch.Command{Compute: compute}))
	}
	require.Len(t, functions, 2)
	require.Equal(t, kept{{Compute: dispatch.Fargate}}, containers)
	r.Fargate = nil
	require.NoError(t, r.Send(t.Context(), dispatch.Command{Compute: dispatch.Fargate}))
	require.Len(t, functions, 3)
}
