package stacks_test

import (
	"encoding/csv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// number of a property, which JSON has as a float.
func number(v any) int {
	f, _ := v.(float64)
	return int(f)
}

// at goes down a path of maps.
func at(v any, path ...string) any {
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

// functions of an installation by their parts' names.
func functions(i *installation) map[string]*resource {
	out := map[string]*resource{}
	for _, f := range i.everywhere("AWS::Lambda::Function") {
		name, _ := f.Properties["FunctionName"].(string)
		out[strings.TrimPrefix(name, "tranship-")] = f
	}
	return out
}

// TestRulesOfCDKNag reads the reports of AwsSolutions: nothing is out of rule but
// what is suppressed with a reason.
func TestRulesOfCDKNag(t *testing.T) {
	for _, name := range all() {
		t.Run(name, func(t *testing.T) {
			i := synth(t, name)
			reports, err := filepath.Glob(filepath.Join(i.dir, "AwsSolutions-*-NagReport.csv"))
			require.NoError(t, err)
			require.Len(t, reports, len(i.templates))
			compliant := 0
			for _, report := range reports {
				f, err := os.Open(report)
				require.NoError(t, err)
				rows, err := csv.NewReader(f).ReadAll()
				require.NoError(t, err)
				f.Close()
				for _, row := range rows[1:] {
					rule, resource, result, reason := row[0], row[1], row[2], row[3]
					switch result {
					case "Compliant":
						compliant++
					case "Suppressed":
						require.Greater(t, len(reason), 30, "%s at %s: a reason", rule, resource)
					default:
						t.Errorf("%s at %s: %s: %s", rule, resource, result, row[5])
					}
				}
			}
			require.Greater(t, compliant, 40, "the rules were looked at")
		})
	}
}

func TestFunctions(t *testing.T) {
	for _, name := range all() {
		t.Run(name, func(t *testing.T) {
			i := synth(t, name)
			loops := []string{}
			for name, f := range functions(i) {
				p := f.Properties
				require.Equal(t, "provided.al2023", p["Runtime"], name)
				require.Equal(t, "bootstrap", p["Handler"], name)
				if p["RecursiveLoop"] == "Allow" {
					loops = append(loops, name)
				}
				env, _ := at(p, "Environment", "Variables").(map[string]any)
				require.Equal(t, "tranship", env["TRANSHIP_NAME"], name)
				require.Equal(t, name != "authorizer", env["TRANSHIP_DATABASE"] != nil, "%s: the authorizer alone has no database", name)
				inNetwork := i.templates["platform"] != nil && !publicNetwork(i) && name != "authorizer"
				require.Equal(t, inNetwork, p["VpcConfig"] != nil, "%s: functions with a database are in its network", name)
				for variable, value := range env {
					require.NotContains(t, strings.ToLower(plain(value)), "password", "%s of %s", variable, name)
				}
			}
			slices.Sort(loops)
			want := []string{"deliver", "dispatch", "sweep", "worker"}
			if functions(i)["dispatch"] == nil {
				want = []string{"deliver", "sweep", "worker"}
			}
			require.Equal(t, want, loops, "what hands over through queues may loop, nothing else")
		})
	}
}

// publicNetwork: the platform has no subnets for its database.
func publicNetwork(i *installation) bool {
	return i.templates["platform"] != nil && len(i.templates["platform"].of("AWS::RDS::DBSubnetGroup")) == 0
}

// TestQueues compares each queue with the function that it feeds.
func TestQueues(t *testing.T) {
	for _, name := range all() {
		t.Run(name, func(t *testing.T) {
			i := synth(t, name)
			app := i.templates["app"]
			byName := map[string]*resource{}
			for _, q := range app.of("AWS::SQS::Queue") {
				name := plain(q.Properties["QueueName"])
				byName[name] = q
				require.Equal(t, true, q.Properties["SqsManagedSseEnabled"], "%s is encrypted", name)
			}
			policies := map[string]bool{}
			for _, p := range app.of("AWS::SQS::QueuePolicy") {
				for _, q := range p.Properties["Queues"].([]any) {
					policies[at(q, "Ref").(string)] = true
				}
			}
			timeouts := map[string]int{}
			for name, f := range functions(i) {
				timeouts[name] = number(f.Properties["Timeout"])
			}
			receives := map[string]int{"tranship-attempts": 100, "tranship-tasks": 5, "tranship-deliveries": 5, "tranship-facts.fifo": 5}
			fed := map[string]string{"tranship-attempts": "worker", "tranship-tasks": "dispatch", "tranship-deliveries": "deliver", "tranship-facts.fifo": "project", "tranship-attempts-dead": "sweep"}
			for name, q := range byName {
				require.True(t, policies[q.ID], "%s refuses what is not TLS", name)
				if f := fed[name]; f != "" {
					require.GreaterOrEqual(t, number(q.Properties["VisibilityTimeout"]), timeouts[f], "%s against %s", name, f)
				}
				if strings.Contains(name, "-dead") {
					require.Equal(t, 14*24*3600, number(q.Properties["MessageRetentionPeriod"]), name)
					continue
				}
				require.Equal(t, receives[name], number(at(q.Properties, "RedrivePolicy", "maxReceiveCount")), name)
				base, fifo := strings.CutSuffix(name, ".fifo")
				dead := byName[base+"-dead"]
				if fifo {
					dead = byName[base+"-dead.fifo"]
				}
				require.NotNil(t, dead, "%s has dead letters", name)
				require.Equal(t, dead.ID, at(q.Properties, "RedrivePolicy", "deadLetterTargetArn").(map[string]any)["Fn::GetAtt"].([]any)[0], name)
				require.Greater(t, number(dead.Properties["MessageRetentionPeriod"]), number(q.Properties["MessageRetentionPeriod"]), "the age of a dead letter counts from its first sending")
			}
			facts := byName["tranship-facts.fifo"].Properties
			require.Equal(t, "perMessageGroupId", facts["FifoThroughputLimit"])
			require.Equal(t, "messageGroup", facts["DeduplicationScope"])
			require.Nil(t, facts["ContentBasedDeduplication"], "the id is ours")
		})
	}
}

// TestConcurrencyAgainstConnections sums what the template allows, and compares it
// with 80 % of the database's connections.
func TestConcurrencyAgainstConnections(t *testing.T) {
	const tasks = 64
	connections := map[string]int{"idle": 823, "warm": 823, "nat": 1669, "existing": 823, "everything": 823, "own": 823, "restored": 823}
	for _, name := range all() {
		t.Run(name, func(t *testing.T) {
			i := synth(t, name)
			byID := map[string]string{}
			bound := map[string]int{}
			for part, f := range functions(i) {
				byID[f.ID] = part
				bound[part] = number(f.Properties["ReservedConcurrentExecutions"])
			}
			mappings := i.templates["app"].of("AWS::Lambda::EventSourceMapping")
			for _, m := range mappings {
				part := byID[plain(m.Properties["FunctionName"])]
				require.Equal(t, []any{"ReportBatchItemFailures"}, m.Properties["FunctionResponseTypes"], part)
				batch := 10
				if part == "worker" {
					batch = 1
				}
				require.Equal(t, batch, number(m.Properties["BatchSize"]), part)
				if n := number(at(m.Properties, "ScalingConfig", "MaximumConcurrency")); n > 0 {
					require.Zero(t, bound[part], "%s: the mapping is the only limit, because throttles burn receives", part)
					bound[part] = n
				}
			}
			sum := 0
			for part, n := range bound {
				switch part {
				case "authorizer": // has no connection
				case "worker":
					sum += 2 * n
				default:
					require.Positive(t, n, "%s is bounded", part)
					sum += n
				}
			}
			if bound["dispatch"] > 0 {
				sum += 2 * tasks
			}
			require.Less(t, sum, connections[name]*80/100)
		})
	}
}

func TestLogsAreKeptForATime(t *testing.T) {
	for _, name := range all() {
		t.Run(name, func(t *testing.T) {
			i := synth(t, name)
			groups := map[string]bool{}
			for _, g := range i.everywhere("AWS::Logs::LogGroup") {
				require.Equal(t, 30, number(g.Properties["RetentionInDays"]), g.Path)
				groups[plain(g.Properties["LogGroupName"])] = true
			}
			for name := range functions(i) {
				require.True(t, groups["/aws/lambda/tranship-"+name], "log group of %s", name)
			}
		})
	}
}

func TestSchedules(t *testing.T) {
	for _, name := range all() {
		t.Run(name, func(t *testing.T) {
			i := synth(t, name)
			found := map[string]string{}
			for _, s := range i.templates["app"].of("AWS::Scheduler::Schedule") {
				name := plain(s.Properties["Name"])
				found[name] = plain(s.Properties["ScheduleExpression"])
				require.Equal(t, "ENABLED", s.Properties["State"], "%s: an update never leaves work without a sweep (P23)", name)
				require.NotNil(t, at(s.Properties, "Target", "DeadLetterConfig", "Arn"), name)
			}
			require.Equal(t, "rate(1 minute)", found["tranship-sweep"])
			require.Equal(t, "rate(1 day)", found["tranship-repair"])
			inVPC := 0
			for name, f := range functions(i) {
				if f.Properties["VpcConfig"] == nil || name == "migrate" || name == "compile" {
					continue
				}
				inVPC++
				require.Equal(t, "rate(7 days)", found["tranship-awake-"+name], "%s would become inactive", name)
			}
			require.Len(t, found, 2+inVPC)
		})
	}
}

func TestAPI(t *testing.T) {
	for _, name := range all() {
		t.Run(name, func(t *testing.T) {
			i := synth(t, name)
			app := i.templates["app"]
			stage := app.of("AWS::ApiGateway::Stage")[0].Properties
			settings := stage["MethodSettings"].([]any)[0].(map[string]any)
			require.Equal(t, 100, number(settings["ThrottlingRateLimit"]))
			require.Equal(t, 200, number(settings["ThrottlingBurstLimit"]))
			require.Equal(t, false, settings["DataTraceEnabled"], "bodies may hold secrets")
			require.NotNil(t, at(stage, "AccessLogSetting", "DestinationArn"))
			methods := app.of("AWS::ApiGateway::Method")
			require.Len(t, methods, 2)
			authorizers := app.of("AWS::ApiGateway::Authorizer")
			for _, m := range methods {
				if len(authorizers) == 0 {
					require.Equal(t, "AWS_IAM", m.Properties["AuthorizationType"])
				} else {
					require.Equal(t, "CUSTOM", m.Properties["AuthorizationType"])
				}
			}
			for _, a := range authorizers {
				require.LessOrEqual(t, number(a.Properties["AuthorizerResultTtlInSeconds"]), 60)
				require.Equal(t, "method.request.header.Authorization", a.Properties["IdentitySource"])
			}
			status := map[string]string{}
			for _, r := range app.of("AWS::ApiGateway::GatewayResponse") {
				kind := r.Properties["ResponseType"].(string)
				status[kind] = plain(r.Properties["StatusCode"])
				require.Contains(t, at(r.Properties, "ResponseTemplates", "application/json"), `"type":"urn:tranship:problem:`, kind)
				require.Equal(t, "'application/problem+json'", at(r.Properties, "ResponseParameters", "gatewayresponse.header.Content-Type"), kind)
			}
			for kind, want := range map[string]string{
				"AUTHORIZER_FAILURE": "503", "AUTHORIZER_CONFIGURATION_ERROR": "503", "UNAUTHORIZED": "401", "ACCESS_DENIED": "403", "THROTTLED": "429", "INTEGRATION_TIMEOUT": "503",
			} {
				require.Equal(t, want, status[kind], kind)
			}
		})
	}
}

func TestDatabase(t *testing.T) {
	for _, name := range []string{"idle", "warm", "nat", "existing"} {
		t.Run(name, func(t *testing.T) {
			platform := synth(t, name).templates["platform"]
			cluster := platform.of("AWS::RDS::DBCluster")[0]
			p := cluster.Properties
			require.Equal(t, true, p["DeletionProtection"])
			require.Equal(t, true, p["EnableIAMDatabaseAuthentication"])
			require.Equal(t, 7, number(p["BackupRetentionPeriod"]))
			require.Equal(t, "Snapshot", cluster.DeletionPolicy)
			require.Empty(t, platform.of("AWS::RDS::DBProxy"))
			scaling := p["ServerlessV2ScalingConfiguration"].(map[string]any)
			if name == "warm" {
				require.InEpsilon(t, 0.5, scaling["MinCapacity"], 0)
				require.Nil(t, scaling["SecondsUntilAutoPause"])
			} else {
				require.Zero(t, scaling["MinCapacity"])
				require.Equal(t, 300, number(scaling["SecondsUntilAutoPause"]))
			}
			if publicNetwork(synth(t, name)) {
				require.Equal(t, true, p["WithExpressConfiguration"])
				return
			}
			require.Equal(t, true, p["StorageEncrypted"])
			require.Equal(t, "iam-db-auth", p["MasterUserAuthenticationType"], "there is no password")
			require.Nil(t, p["MasterUserPassword"])
			for _, rule := range platform.of("AWS::EC2::SecurityGroupIngress") {
				require.NotNil(t, rule.Properties["SourceSecurityGroupId"], "groups alone come in")
			}
		})
	}
}

func TestNetwork(t *testing.T) {
	platform := func(name string) *template { return synth(t, name).templates["platform"] }
	require.Empty(t, platform("idle").of("AWS::EC2::NatGateway"))
	require.Empty(t, platform("warm").of("AWS::EC2::NatGateway"), "nothing is billed by the hour")
	require.Len(t, platform("warm").of("AWS::EC2::EgressOnlyInternetGateway"), 1)
	require.Len(t, platform("warm").of("AWS::EC2::VPCEndpoint"), 1)
	require.Len(t, platform("nat").of("AWS::EC2::NatGateway"), 1)
	require.Empty(t, platform("existing").of("AWS::EC2::VPC"))
	for name, dual := range map[string]bool{"warm": true, "nat": false, "existing": false} {
		worker := functions(synth(t, name))["worker"].Properties
		require.Equal(t, dual, at(worker, "Environment", "Variables", "AWS_USE_DUALSTACK_ENDPOINT") == "true", name)
		require.Equal(t, dual, at(worker, "VpcConfig", "Ipv6AllowedForDualStack") == true, name)
	}
	// A way out over IPv6 for each subnet of the functions.
	ipv6 := 0
	for _, r := range platform("warm").of("AWS::EC2::Route") {
		if r.Properties["DestinationIpv6CidrBlock"] == "::/0" && r.Properties["EgressOnlyInternetGatewayId"] != nil {
			ipv6++
		}
	}
	require.Equal(t, 2, ipv6)
}

func TestTask(t *testing.T) {
	for _, name := range []string{"idle", "warm", "existing"} {
		t.Run(name, func(t *testing.T) {
			app := synth(t, name).templates["app"]
			task := app.of("AWS::ECS::TaskDefinition")[0].Properties
			require.Equal(t, "ARM64", at(task, "RuntimePlatform", "CpuArchitecture"))
			container := task["ContainerDefinitions"].([]any)[0].(map[string]any)
			require.Contains(t, plain(container["Image"]), "@sha256:")
			require.Equal(t, true, container["ReadonlyRootFilesystem"])
			require.Equal(t, 120, number(container["StopTimeout"]), "time to hand over")
			// Function and task are one program with one environment.
			want, _ := at(functions(synth(t, name))["worker"].Properties, "Environment", "Variables").(map[string]any)
			have := map[string]any{}
			for _, pair := range container["Environment"].([]any) {
				have[at(pair, "Name").(string)] = at(pair, "Value")
			}
			delete(have, "TRANSHIP_TASK_MEMORY")
			delete(have, "TRANSHIP_ATTEMPT_TIME")
			want = maps.Clone(want)
			delete(want, "AWS_USE_DUALSTACK_ENDPOINT") // tasks have IPv4
			require.Equal(t, want, have)
			rule := app.of("AWS::Events::Rule")[0].Properties
			require.Equal(t, []any{"STOPPED"}, at(rule, "EventPattern", "detail", "lastStatus"))
		})
	}
	require.Empty(t, synth(t, "nat").templates["app"].of("AWS::Events::Rule"))
}

// TestForAnEmulator: with a database of one's own nothing is in the templates that
// emulators are known to refuse.
func TestForAnEmulator(t *testing.T) {
	i := synth(t, "own")
	require.Nil(t, i.templates["platform"])
	for _, part := range []string{"migrate", "app"} {
		for id, r := range i.templates[part].Resources {
			require.NotContains(t, []string{
				"AWS::CloudWatch::Dashboard", "AWS::Logs::MetricFilter", "AWS::Lambda::Alias", "AWS::Lambda::Version", "AWS::CloudFormation::CustomResource",
			}, r.Type, id)
			for _, service := range []string{"ECS", "RDS", "EC2", "ECR"} {
				require.NotContains(t, r.Type, "AWS::"+service+"::", id)
			}
			require.False(t, strings.HasPrefix(r.Type, "Custom::"), id)
		}
	}
}

func TestWhatIsKept(t *testing.T) {
	for name, want := range map[string]string{"idle": "Retain", "own": "Delete"} {
		require.Equal(t, want, synth(t, name).templates["migrate"].of("AWS::KMS::Key")[0].DeletionPolicy, name)
	}
	key := synth(t, "idle").templates["migrate"].of("AWS::KMS::Key")[0].Properties
	require.Equal(t, true, key["EnableKeyRotation"])
}

func TestAlarms(t *testing.T) {
	for _, name := range all() {
		t.Run(name, func(t *testing.T) {
			i := synth(t, name)
			app := i.templates["app"]
			composite := app.of("AWS::CloudWatch::CompositeAlarm")
			require.Len(t, composite, 1)
			metrics := 0
			for _, a := range app.of("AWS::CloudWatch::Alarm") {
				name := plain(a.Properties["AlarmName"])
				require.Equal(t, "notBreaching", a.Properties["TreatMissingData"], "%s: idle is well", name)
				require.Equal(t, name != "tranship-run-failures", strings.Contains(plain(composite[0].Properties["AlarmRule"]), `ALARM("`+name+`")`), name)
				metrics++
				if list, _ := a.Properties["Metrics"].([]any); len(list) > 0 {
					metrics += len(list) - 2 // the expression is free
				}
			}
			require.LessOrEqual(t, metrics, 13, "alarms are billed by their metrics: docs/cost.md")
		})
	}
}

// TestAnotherDatabase: going over to a restored database changes nothing of the
// platform, so that no export is in the way and nothing is deleted.
func TestAnotherDatabase(t *testing.T) {
	before, after := synth(t, "warm"), synth(t, "restored")
	require.Equal(t, before.templates["platform"].Resources, after.templates["platform"].Resources)
	require.Equal(t, before.templates["platform"].Outputs, after.templates["platform"].Outputs)
	worker := functions(after)["worker"].Properties
	require.Contains(t, at(worker, "Environment", "Variables", "TRANSHIP_DATABASE"), "restored.example")
	require.NotNil(t, worker["VpcConfig"])
}
