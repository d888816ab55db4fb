// Command function is a Lambda function that behaves as its event asks, or the
// variables INIT (at its start) and ALWAYS (at every event): it tests the plug-in
// that runs functions as processes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

// event is what an invocation asks for.
type event struct {
	// Do is echo, sleep, panic, exit, error, allocate, hang or large.
	Do string `json:"do"`
	// Text is logged and answered.
	Text string `json:"text"`
	// N is an exit code, milliseconds or MiB.
	N int `json:"n"`
}

// answer tells what the function saw.
type answer struct {
	Text      string   `json:"text"`
	Pid       int      `json:"pid"`
	Request   string   `json:"request"`
	Remaining int64    `json:"remaining"` // ms until the deadline
	Env       []string `json:"env"`
}

func main() {
	if os.Getenv("INIT") == "exit" {
		fmt.Println("giving up at the start")
		os.Exit(17)
	}
	lambda.Start(handle)
}

func handle(ctx context.Context, e event) (*answer, error) {
	if e.Text != "" {
		fmt.Println(e.Text)
	}
	// What a queue sends says nothing of ours.
	if always := os.Getenv("ALWAYS"); always != "" {
		e.Do = always
	}
	switch e.Do {
	case "sleep":
		time.Sleep(time.Duration(e.N) * time.Millisecond)
	case "hang":
		select {}
	case "panic":
		panic("as asked")
	case "exit":
		os.Exit(e.N)
	case "error":
		return nil, errors.New(e.Text)
	case "allocate":
		allocate(e.N)
	case "large":
		e.Text = strings.Repeat("x", e.N<<20)
	}
	deadline, _ := ctx.Deadline()
	lc, _ := lambdacontext.FromContext(ctx)
	return &answer{
		Text: e.Text, Pid: os.Getpid(), Request: lc.AwsRequestID,
		Remaining: time.Until(deadline).Milliseconds(), Env: os.Environ(),
	}, nil
}

// allocate takes and touches memory, and waits for what happens.
func allocate(mib int) {
	held := make([][]byte, 0, mib)
	for range mib {
		block := make([]byte, 1<<20)
		for i := range block {
			block[i] = 1
		}
		held = append(held, block)
	}
	time.Sleep(time.Hour)
	fmt.Println(len(held))
}
