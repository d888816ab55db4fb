package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/dispatch"
)

const stopped = "STOPPED"

// stop is how ECS tells that a task stopped.
type stop struct {
	code, why string
	exit      *int32
}

func (s stop) end(t dispatch.Task, version int64) dispatch.TaskEnd {
	e := dispatch.TaskEnd{Task: t, Version: version, Reason: s.why}
	if s.exit != nil {
		e.Reason = fmt.Sprintf("%s (exit code %d)", s.why, *s.exit)
	}
	switch s.code {
	case "SpotInterruption", "TerminationNotice", "UserInitiated":
		e.Blameless = true
	case "TaskFailedToStart":
		e.Blameless = strings.Contains(s.why, "Capacity is unavailable")
	}
	return e
}

// startedBy names the command that a task was started for, so that a report about
// it can be understood even if nobody remembers its id.
func startedBy(c dispatch.Command) string {
	return fmt.Sprintf("tranship/%s/%s/%d/%d", c.Organization, c.Run, c.Slot, c.Sent)
}

func parseStartedBy(text string) (dispatch.Command, bool) {
	part := strings.Split(text, "/")
	if len(part) != 5 || part[0] != "tranship" {
		return dispatch.Command{}, false
	}
	organization, err1 := uuid.Parse(part[1])
	run, err2 := uuid.Parse(part[2])
	slot, err3 := strconv.Atoi(part[3])
	sent, err4 := strconv.ParseInt(part[4], 10, 64)
	c := dispatch.Command{Organization: organization, Run: run, Slot: slot, Sent: sent, Compute: dispatch.Fargate}
	return c, errors.Join(err1, err2, err3, err4) == nil
}

// stateChange is the detail of an event "ECS Task State Change".
type stateChange struct {
	TaskArn       string `json:"taskArn"`
	LastStatus    string `json:"lastStatus"`
	StartedBy     string `json:"startedBy"`
	Version       int64  `json:"version"`
	StopCode      string `json:"stopCode"`
	StoppedReason string `json:"stoppedReason"`
	Containers    []struct {
		ExitCode *int32 `json:"exitCode"`
	} `json:"containers"`
}

// EndOf reads the detail of a task state change event; false: it tells of no end of
// a task of ours. Events come repeated and out of order: Version tells.
func EndOf(detail json.RawMessage) (dispatch.TaskEnd, bool, error) {
	var is stateChange
	if err := json.Unmarshal(detail, &is); err != nil {
		return dispatch.TaskEnd{}, false, fmt.Errorf("parse task state change: %w", err)
	}
	c, ours := parseStartedBy(is.StartedBy)
	if is.LastStatus != stopped || !ours {
		return dispatch.TaskEnd{}, false, nil
	}
	s := stop{code: is.StopCode, why: is.StoppedReason}
	if len(is.Containers) > 0 {
		s.exit = is.Containers[0].ExitCode
	}
	return s.end(dispatch.Task{Command: c, ID: is.TaskArn}, is.Version), true, nil
}
