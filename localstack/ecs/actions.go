package ecs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

const arnPrefix = "arn:aws:ecs:us-east-1:000000000000:"

type runTaskInput struct {
	Cluster        string    `json:"cluster"`
	TaskDefinition string    `json:"taskDefinition"`
	Count          int       `json:"count"`
	ClientToken    string    `json:"clientToken"`
	StartedBy      string    `json:"startedBy"`
	Group          string    `json:"group"`
	Overrides      overrides `json:"overrides"`
	Tags           []tag     `json:"tags"`
}

type overrides struct {
	ContainerOverrides []containerOverride `json:"containerOverrides,omitempty"`
	CPU                string              `json:"cpu,omitempty"`
	Memory             string              `json:"memory,omitempty"`
}

type containerOverride struct {
	Name        string      `json:"name"`
	Command     []string    `json:"command,omitempty"`
	Environment []nameValue `json:"environment,omitempty"`
}

type nameValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type tasksOutput struct {
	Tasks    []document `json:"tasks"`
	Failures []failure  `json:"failures"`
}

type failure struct {
	Arn    string `json:"arn,omitempty"`
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
}

// runTask starts tasks. The same client token gives the same tasks again.
func (s *Shim) runTask(in runTaskInput) (*tasksOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, &apiError{Code: "ServerException", Message: "the rig ends"}
	}
	if s.faults.Throttle > 0 {
		s.faults.Throttle--
		return nil, &apiError{Code: "ThrottlingException", Message: "Rate exceeded"}
	}
	if in.TaskDefinition == "" {
		return nil, &apiError{Code: "InvalidParameterException", Message: "TaskDefinition must not be empty"}
	}
	for _, o := range in.Overrides.ContainerOverrides {
		if o.Name != s.config.Container {
			return nil, &apiError{Code: "InvalidParameterException", Message: fmt.Sprintf("Override for container named %s is not a container in the TaskDefinition.", o.Name)}
		}
	}
	out := &tasksOutput{Tasks: []document{}, Failures: []failure{}}
	if arns, ok := s.byToken[in.ClientToken]; ok && in.ClientToken != "" {
		for _, arn := range arns {
			out.Tasks = append(out.Tasks, s.tasks[arn].document)
		}
		return out, nil
	}
	if s.faults.NoCapacity > 0 {
		s.faults.NoCapacity--
		out.Failures = append(out.Failures, failure{Reason: "Capacity is unavailable at this time. Please try again later or in a different availability zone"})
		return out, nil
	}
	cluster := in.Cluster[strings.LastIndex(in.Cluster, "/")+1:]
	if cluster == "" {
		cluster = "default"
	}
	for range max(in.Count, 1) {
		t := s.newTask(cluster, in)
		out.Tasks = append(out.Tasks, t.document)
		if in.ClientToken != "" {
			s.byToken[in.ClientToken] = append(s.byToken[in.ClientToken], t.document.TaskArn)
		}
		dies := s.faults.DieAtStart > 0
		if dies {
			s.faults.DieAtStart--
		}
		s.running.Go(func() { s.live(t, in.Overrides, dies) })
	}
	return out, nil
}

func (s *Shim) newTask(cluster string, in runTaskInput) *task {
	id := strings.ReplaceAll(uuid.NewString(), "-", "")
	arn := arnPrefix + "task/" + cluster + "/" + id
	t := &task{stop: make(chan struct{}), document: document{
		TaskArn: arn, ClusterArn: arnPrefix + "cluster/" + cluster, TaskDefinitionArn: in.TaskDefinition,
		DesiredStatus: "RUNNING", StartedBy: in.StartedBy, Group: in.Group, LaunchType: "FARGATE",
		Overrides: in.Overrides, Tags: in.Tags, CreatedAt: now(),
		Containers: []container{{ContainerArn: arnPrefix + "container/" + cluster + "/" + id, TaskArn: arn, Name: s.config.Container}},
	}}
	if !strings.HasPrefix(in.TaskDefinition, "arn:") {
		t.document.TaskDefinitionArn = arnPrefix + "task-definition/" + in.TaskDefinition
	}
	if in.Group == "" {
		family := in.TaskDefinition[strings.LastIndex(in.TaskDefinition, "/")+1:]
		family, _, _ = strings.Cut(family, ":")
		t.document.Group = "family:" + family
	}
	s.tasks[arn] = t
	s.changeLocked(t, "PROVISIONING")
	return t
}

type describeTasksInput struct {
	Cluster string   `json:"cluster"`
	Tasks   []string `json:"tasks"`
}

func (s *Shim) describeTasks(in describeTasksInput) (*tasksOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &tasksOutput{Tasks: []document{}, Failures: []failure{}}
	for _, name := range in.Tasks {
		if t := s.findLocked(name); t != nil {
			out.Tasks = append(out.Tasks, t.document)
		} else {
			out.Failures = append(out.Failures, failure{Arn: name, Reason: "MISSING"})
		}
	}
	return out, nil
}

type listTasksInput struct {
	Cluster       string `json:"cluster"`
	StartedBy     string `json:"startedBy"`
	DesiredStatus string `json:"desiredStatus"`
}

type listTasksOutput struct {
	TaskArns []string `json:"taskArns"`
}

func (s *Shim) listTasks(in listTasksInput) (*listTasksOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	desired := in.DesiredStatus
	if desired == "" {
		desired = "RUNNING"
	}
	out := &listTasksOutput{TaskArns: []string{}}
	for arn, t := range s.tasks {
		if t.document.DesiredStatus == desired && (in.StartedBy == "" || t.document.StartedBy == in.StartedBy) {
			out.TaskArns = append(out.TaskArns, arn)
		}
	}
	slices.Sort(out.TaskArns)
	return out, nil
}

type stopTaskInput struct {
	Cluster string `json:"cluster"`
	Task    string `json:"task"`
	Reason  string `json:"reason"`
}

type stopTaskOutput struct {
	Task document `json:"task"`
}

func (s *Shim) stopTask(in stopTaskInput) (*stopTaskOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.findLocked(in.Task)
	if t == nil {
		return nil, &apiError{Code: "InvalidParameterException", Message: "The referenced task was not found."}
	}
	s.stopLocked(t, "UserInitiated", in.Reason)
	return &stopTaskOutput{Task: t.document}, nil
}

// findLocked takes an ARN or its last part.
func (s *Shim) findLocked(name string) *task {
	if t := s.tasks[name]; t != nil {
		return t
	}
	for arn, t := range s.tasks {
		if strings.HasSuffix(arn, "/"+name) {
			return t
		}
	}
	return nil
}
