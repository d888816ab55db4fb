package transhipcdk

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// Tranship is an installation without its database: API, functions, queues,
// schedules, alarms.
type Tranship struct {
	// API is the HTTPS API.
	API awsapigateway.RestApi
	// Functions by their parts' names, such as "worker". Pipelines whose ends need
	// rights of AWS get them here: props.Buckets gives those for S3.
	Functions map[string]awslambda.Function
	// Queues by their parts' names, such as "attempts", and their dead letters.
	Queues, DeadLetters map[string]awssqs.Queue

	*builder
	props    Props
	queues   *queues
	schedule *schedules
	tasks    *tasks
}

// NewTranship makes an installation. Its migration must be deployed, and its
// function invoked, before.
func NewTranship(scope constructs.Construct, id string, props *Props) *Tranship {
	p := *props
	if p.Fargate != nil {
		f := *p.Fargate
		p.Fargate = &f
	}
	p.setDefaults()
	if err := p.Validate(); err != nil {
		panic(err.Error())
	}
	if p.Migration == nil {
		panic("Tranship needs its Migration, which has the key")
	}
	t := &Tranship{
		builder:   newBuilder(constructs.NewConstruct(scope, jsii.String(id)), p.Base),
		Functions: map[string]awslambda.Function{},
		props:     p,
	}
	t.queues = newQueues(t.scope, t.names, t.queueSpecs())
	t.Queues, t.DeadLetters = t.queues.main, t.queues.dead
	t.schedule = newSchedules(t, t.names, t.queues.scheduled)
	if p.Fargate != nil {
		t.addTasks()
	}
	for _, s := range t.functionSpecs() {
		t.Functions[s.name] = t.function(s)
	}
	t.feedFunctions()
	t.schedule.addFixed(t)
	if t.tasks != nil {
		t.tellTasks()
	}
	t.API = t.newAPI()
	if !p.NoAlarms {
		t.newAlarms()
	}
	if p.Dashboard {
		t.newDashboard()
	}
	suppressApp(t)
	output(t.scope, "URL", *t.API.Url(), "Address of the API")
	output(t.scope, "API", *t.API.RestApiId(), "Id of the API")
	return t
}

const sweepTimeout = time.Minute

// visibility is six times a function's timeout, as AWS advises: a batch may be
// throttled and tried again before it is seen by another.
const visibility = 6

func (t *Tranship) queueSpecs() []queueSpec {
	specs := []queueSpec{
		// Throttled invocations burn receives, and a lost command is offered again
		// anyway: hence many. The lease, not the visibility, decides who works.
		{name: "attempts", dead: "attempts-dead", visibility: t.props.WorkerTimeout + time.Minute, receives: 100},
		{name: "facts.fifo", dead: "facts-dead.fifo", fifo: true, visibility: visibility * projectTimeout, receives: 5},
		{name: "deliveries", dead: "deliveries-dead", visibility: visibility * deliverTimeout, receives: 5},
	}
	if t.props.Fargate != nil {
		specs = append(specs, queueSpec{name: "tasks", dead: "tasks-dead", visibility: visibility * dispatchTimeout, receives: 5})
	}
	return specs
}

// feedFunctions lets the queues invoke what works on them. A batch of the worker is
// one attempt.
func (t *Tranship) feedFunctions() {
	c := t.props.Concurrency
	feed(t.Functions["worker"], t.queues.main["attempts"], 1, c.Worker)
	feed(t.Functions["project"], t.queues.main["facts.fifo"], 10, c.Project)
	feed(t.Functions["deliver"], t.queues.main["deliveries"], 10, c.Deliver)
	// Dead commands are rare: without a maximum their pollers scale down when idle.
	feed(t.Functions["sweep"], t.queues.dead["attempts"], 10, 0)
	if t.tasks != nil {
		feed(t.Functions["dispatch"], t.queues.main["tasks"], 10, c.Dispatch)
	}
}

// merge joins environments.
func merge(envs ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, e := range envs {
		maps.Copy(out, e)
	}
	return out
}

// grants joins rights; those for the same thing stand once.
func grants(lists ...[]awsiam.PolicyStatement) []awsiam.PolicyStatement {
	seen := map[string]bool{}
	var out []awsiam.PolicyStatement
	for _, s := range slices.Concat(lists...) {
		if sid := *s.Sid(); !seen[sid] {
			seen[sid] = true
			out = append(out, s)
		}
	}
	return out
}

func one(s ...awsiam.PolicyStatement) []awsiam.PolicyStatement { return s }

// limits are what those who dispatch or work keep to.
func (t *Tranship) limits() map[string]string {
	return map[string]string{
		"TRANSHIP_MAX_RUNNING": strconv.Itoa(t.props.MaxRunning),
		"TRANSHIP_LEASE":       t.props.Lease.String(),
		// Beyond this, auto chooses a container.
		"TRANSHIP_WORKER_MEMORY": strconv.Itoa(t.props.WorkerMemory),
	}
}
