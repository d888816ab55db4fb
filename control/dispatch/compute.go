package dispatch

import (
	"cmp"
	"time"

	"github.com/tranship-io/tranship/control"
)

// What attempts run on, as pipelines name it. Auto, or nothing, leaves the choice
// to [Platform.Choose]; Process is a process of tranship serve.
const (
	Auto    = "auto"
	Process = "process"
	Lambda  = "lambda"
	Fargate = "fargate"
)

// Platform is what an installation can run attempts on. The zero value is one
// whose processes take every attempt, whatever its pipeline names.
type Platform struct {
	Lambda, Fargate bool
	// LambdaMemory bounds an attempt's memory on Lambda, in bytes; 0 means 7,680 MiB,
	// three quarters of the largest function.
	LambdaMemory int64
}

// From where on a container is the better place: it costs about half of a function
// for the same time, and no hand-over each quarter of an hour, but takes up to a
// minute to start.
const (
	longRun      = 45 * time.Minute
	largeRun     = 100 << 30
	manyAttempts = 5
	lambdaMemory = 7680 << 20
)

// Demand is what the choice depends on.
type Demand struct {
	// Compute is what the pipeline names.
	Compute string
	// Memory is the attempt's bound in bytes; 0: the installation's.
	Memory int64
	// Attempts are those that the run has had, Age is the time since its first one.
	Attempts int
	Age      time.Duration
	// LastBytes and LastTime are those of the route's last completed run.
	LastBytes int64
	LastTime  time.Duration
	// Cancel: the attempt only ends what is left of a canceled run.
	Cancel bool
}

// Choose returns where an attempt runs; empty: in a process of the installation.
func (p Platform) Choose(d Demand) string {
	switch {
	case !p.Lambda && !p.Fargate:
		return ""
	case !p.Lambda:
		return Fargate
	case !p.Fargate, d.Cancel, d.Compute == Lambda:
		// A cancel takes 10 s at most (P22), which no container starts in.
		return Lambda
	case d.Compute == Fargate,
		d.Memory > cmp.Or(p.LambdaMemory, lambdaMemory),
		d.LastTime >= longRun, d.LastBytes >= largeRun,
		d.Attempts >= manyAttempts, d.Age >= longRun:
		return Fargate
	}
	return Lambda
}

// Check refuses what a pipeline names and the installation does not have; path is
// where the pipeline says so. The error is a *control.InvalidError.
func (p Platform) Check(path, compute string) error {
	switch {
	case !p.Lambda && !p.Fargate:
		return nil
	case compute == Fargate && !p.Fargate:
		return control.Invalid(path, "deploy the installation with Fargate, or use auto or lambda", "this installation has no Fargate")
	case compute == Process:
		return control.Invalid(path, "use auto, lambda or fargate", "this installation runs on AWS: it has no processes of tranship serve")
	}
	return nil
}
