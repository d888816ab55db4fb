package stacks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// telling are the properties, by type, whose change a reader of a difference wants
// to see. Types that are not here only show that they are there.
var telling = map[string][]string{
	"AWS::ApiGateway::Authorizer":         {"Type", "AuthorizerResultTtlInSeconds"},
	"AWS::ApiGateway::GatewayResponse":    {"StatusCode"},
	"AWS::ApiGateway::Method":             {"AuthorizationType"},
	"AWS::CloudWatch::Alarm":              {"AlarmName", "Threshold", "EvaluationPeriods"},
	"AWS::EC2::Subnet":                    {"CidrBlock", "MapPublicIpOnLaunch"},
	"AWS::ECR::Repository":                {"RepositoryName", "ImageTagMutability"},
	"AWS::ECS::TaskDefinition":            {"Family", "Cpu", "Memory"},
	"AWS::Events::Rule":                   {"Name"},
	"AWS::KMS::Key":                       {"EnableKeyRotation"},
	"AWS::Lambda::EventInvokeConfig":      {"MaximumRetryAttempts"},
	"AWS::Lambda::EventSourceMapping":     {"BatchSize", "ScalingConfig"},
	"AWS::Lambda::Function":               {"FunctionName", "Timeout", "MemorySize", "ReservedConcurrentExecutions", "RecursiveLoop", "Architectures"},
	"AWS::Logs::LogGroup":                 {"RetentionInDays"},
	"AWS::RDS::DBCluster":                 {"ServerlessV2ScalingConfiguration", "WithExpressConfiguration", "BackupRetentionPeriod", "DeletionProtection", "EngineVersion"},
	"AWS::RDS::DBInstance":                {"DBInstanceClass", "PubliclyAccessible"},
	"AWS::SQS::Queue":                     {"QueueName", "VisibilityTimeout", "MessageRetentionPeriod", "RedrivePolicy"},
	"AWS::Scheduler::Schedule":            {"Name", "ScheduleExpression", "State"},
	"AWS::CloudWatch::CompositeAlarm":     {"AlarmName"},
	"AWS::EC2::SecurityGroup":             {"GroupDescription"},
	"AWS::EC2::EgressOnlyInternetGateway": {},
}

// TestSummary compares what the stacks hold with a short text. A change of it is
// meant to be read; TRANSHIP_UPDATE=1 writes it.
func TestSummary(t *testing.T) {
	for _, name := range []string{"idle", "warm"} {
		t.Run(name, func(t *testing.T) {
			golden(t, filepath.Join("testdata", name+".txt"), summary(synth(t, name)))
		})
	}
}

func golden(t *testing.T, file, have string) {
	t.Helper()
	if os.Getenv("TRANSHIP_UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(have), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), have, "%s: read the difference; TRANSHIP_UPDATE=1 takes it", file)
}

func summary(i *installation) string {
	var b strings.Builder
	for _, part := range []string{"platform", "migrate", "app"} {
		t := i.templates[part]
		if t == nil {
			continue
		}
		fmt.Fprintf(&b, "%s\n", t.Stack)
		var lines []string
		for _, r := range t.Resources {
			if r.Type == "AWS::CDK::Metadata" {
				continue
			}
			line := fmt.Sprintf("  %s %s", strings.TrimPrefix(r.Type, "AWS::"), shortPath(r))
			for _, p := range telling[r.Type] {
				if v := r.Properties[p]; v != nil {
					line += fmt.Sprintf(" %s=%s", p, i.resourceOf(t, v))
				}
			}
			if r.DeletionPolicy != "" && r.DeletionPolicy != "Delete" {
				line += " deletion=" + r.DeletionPolicy
			}
			lines = append(lines, line)
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, "\n") + "\n\n")
	}
	return strings.TrimSpace(b.String()) + "\n"
}

// shortPath is the construct's path without the hashes that the CDK puts into some.
func shortPath(r *resource) string {
	path := strings.TrimPrefix(strings.TrimPrefix(r.Path, "tranship/"), "platform/")
	if r.Type == "AWS::ApiGateway::Deployment" {
		return "Deployment"
	}
	if r.Type == "AWS::Lambda::Permission" {
		return hash.ReplaceAllString(strings.Split(path, ":")[0], "")
	}
	return path
}
