package transhipcdk

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"
)

const (
	dispatchTimeout = time.Minute
	projectTimeout  = time.Minute
	deliverTimeout  = 2 * time.Minute
)

// functionSpecs is the table of docs/aws.md: for each function what it is given and
// what it may do.
func (t *Tranship) functionSpecs() []functionSpec {
	var (
		n, p, c  = t.names, t.props, t.props.Concurrency
		key      = *p.Migration.Key.KeyArn()
		role     = *t.schedule.role.RoleArn()
		signing  = map[string]string{"TRANSHIP_SIGNING_PARAMETER": first(n.parameter("signing"))}
		keyEnv   = map[string]string{"TRANSHIP_KMS_KEY": key}
		oidc     = optional("TRANSHIP_OIDC", p.OIDC)
		webhooks = optional("TRANSHIP_WEBHOOKS", p.Webhooks)
		sweepOf  = map[string]string{"TRANSHIP_SWEEP_SCHEDULE": n.of("sweep"), "TRANSHIP_SCHEDULE_GROUP": n.name}
		calendar = map[string]string{
			"TRANSHIP_SCHEDULE_GROUP":   n.name,
			"TRANSHIP_SCHEDULE_ROLE":    role,
			"TRANSHIP_COMPILE_FUNCTION": n.function("compile"),
			// Firings that could not be delivered are kept where those of our own schedules are.
			"TRANSHIP_SCHEDULE_DEAD_LETTERS": *t.queues.scheduled.QueueArn(),
		}
		commands = merge(t.commandQueues(), t.queueEnv("TRANSHIP_FACTS_QUEUE", "facts.fifo"))
		inspects = map[string]string{"TRANSHIP_INSPECT_FUNCTION": n.function("inspect")}
		ends     = grants(one(n.unwrapSecrets(key), n.readSecrets()), n.useBuckets(p.Buckets))
	)
	dispatches := func(more ...string) awsiam.PolicyStatement {
		queues := []string{"attempts", "facts.fifo"}
		if t.tasks != nil {
			queues = append(queues, "tasks")
		}
		return n.send(append(queues, more...)...)
	}
	specs := []functionSpec{
		{
			name: "api", description: "Answers requests", timeout: 29 * time.Second, memory: 512, reserved: c.API, database: true,
			env: merge(signing, keyEnv, oidc, webhooks, sweepOf, calendar, commands, t.limits(), t.tasks.choice(), inspects),
			grants: grants(one(n.readSigningKey(), n.wrapSecrets(key), n.readSecrets(), dispatches(), n.invoke("inspect")),
				n.keepSchedules(role)),
		},
		{
			name: "compile", description: "Makes runs of a schedule's occurrence; repairs schedules", timeout: time.Minute, memory: 256,
			reserved: c.Compile, database: true,
			env:    merge(sweepOf, calendar, commands, t.limits(), t.tasks.choice()),
			grants: grants(one(dispatches(), n.listSchedules()), n.keepSchedules(role)),
		},
		{
			name: "worker", description: "Executes one bounded attempt of a run", timeout: p.WorkerTimeout, memory: p.WorkerMemory,
			database: true, loop: true,
			env:    t.workerEnv(),
			grants: t.workerGrants(),
		},
		{
			name: "project", description: "Folds facts into read models and raises deliveries", timeout: projectTimeout, memory: 256, database: true,
			env: merge(sweepOf, commands, t.limits(), t.tasks.choice(),
				t.queueEnv("TRANSHIP_DELIVERIES_QUEUE", "deliveries"), t.queueEnv("TRANSHIP_DEAD_QUEUE", "facts-dead.fifo")),
			grants: grants(one(n.receive("facts.fifo"), dispatches("deliveries", "facts-dead.fifo")),
				n.switchSweep(role)),
		},
		{
			name: "deliver", description: "Sends notifications", timeout: deliverTimeout, memory: 256, database: true, loop: true,
			env: merge(sweepOf, keyEnv, webhooks, optional("TRANSHIP_SMTP_URL", p.SMTPURL), optional("TRANSHIP_SMTP_FROM", p.SMTPFrom),
				t.queueEnv("TRANSHIP_DELIVERIES_QUEUE", "deliveries"), t.queueEnv("TRANSHIP_DEAD_QUEUE", "deliveries-dead")),
			grants: grants(one(n.receive("deliveries"), n.send("deliveries", "deliveries-dead"), n.unwrapSecrets(key), n.readSecrets()),
				n.switchSweep(role)),
		},
		{
			name: "sweep", description: "Does what nobody did: lost leases, offers, facts, schedules", timeout: sweepTimeout, memory: 256,
			reserved: c.Sweep, database: true, loop: true,
			env: merge(sweepOf, calendar, commands, t.limits(), t.tasks.env(), inspects,
				map[string]string{"TRANSHIP_SWEEP_FUNCTION": n.function("sweep")}, t.queueEnv("TRANSHIP_DELIVERIES_QUEUE", "deliveries")),
			grants: grants(one(n.receive("attempts-dead"), dispatches("deliveries"), n.listSchedules(), n.invoke("inspect")),
				n.keepSchedules(role), t.runTasks()),
		},
		{
			name: "inspect", description: "Tests connections, discovers, validates", timeout: 15 * time.Minute, memory: 512,
			reserved: c.Inspect, database: true,
			env:    merge(keyEnv),
			grants: ends,
			// The sweep ends an inspection that was lost; a second one is the caller's choice.
			retries: jsii.Number(0),
		},
	}
	if p.Authorization == Keys {
		specs = append(specs, functionSpec{
			name: "authorizer", description: "Verifies keys and tokens offline", timeout: 5 * time.Second, memory: 128,
			env:    merge(signing, oidc),
			grants: one(n.readSigningKey()),
		})
	}
	if t.tasks != nil {
		specs = append(specs, functionSpec{
			name: "dispatch", description: "Runs attempts as Fargate tasks", timeout: dispatchTimeout, memory: 256, database: true, loop: true,
			env:    merge(sweepOf, commands, t.limits(), t.tasks.env(), t.queueEnv("TRANSHIP_DEAD_QUEUE", "tasks-dead")),
			grants: grants(one(n.receive("tasks"), dispatches("tasks-dead")), t.runTasks(), n.switchSweep(role)),
		})
	}
	return specs
}

// workerEnv and workerGrants are those of the function and of the task alike,
// because both are the same program.
func (t *Tranship) workerEnv() map[string]string {
	n := t.names
	return merge(t.commandQueues(), t.limits(), t.tasks.choice(), map[string]string{
		"TRANSHIP_KMS_KEY":        *t.props.Migration.Key.KeyArn(),
		"TRANSHIP_SWEEP_SCHEDULE": n.of("sweep"),
		"TRANSHIP_SCHEDULE_GROUP": n.name,
	}, t.queueEnv("TRANSHIP_FACTS_QUEUE", "facts.fifo"), t.queueEnv("TRANSHIP_DEAD_QUEUE", "attempts-dead"))
}

func (t *Tranship) workerGrants() []awsiam.PolicyStatement {
	n, key := t.names, *t.props.Migration.Key.KeyArn()
	queues := []string{"attempts", "facts.fifo", "attempts-dead"}
	if t.tasks != nil {
		queues = append(queues, "tasks")
	}
	return grants(one(n.receive("attempts"), n.send(queues...), n.unwrapSecrets(key), n.readSecrets()),
		n.switchSweep(*t.schedule.role.RoleArn()), n.useBuckets(t.props.Buckets))
}

// commandQueues are where those who dispatch send attempts.
func (t *Tranship) commandQueues() map[string]string {
	env := t.queueEnv("TRANSHIP_ATTEMPTS_QUEUE", "attempts")
	if t.props.Fargate != nil {
		env = merge(env, t.queueEnv("TRANSHIP_TASKS_QUEUE", "tasks"))
	}
	return env
}

func (t *Tranship) queueEnv(variable, part string) map[string]string {
	return map[string]string{variable: *t.queues.all[part].QueueUrl()}
}

func optional(variable, value string) map[string]string {
	if value == "" {
		return nil
	}
	return map[string]string{variable: value}
}

func first(a, _ string) string { return a }
