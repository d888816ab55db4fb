package blackbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
)

// resource of a synthesized template.
type resource struct {
	Type       string         `json:"Type"`
	Properties map[string]any `json:"Properties"`
}

// template reads what was deployed.
func template(t *testing.T, stack string) map[string]resource {
	t.Helper()
	dir := os.Getenv("TRANSHIP_RIG_TEMPLATES")
	require.NotEmpty(t, dir, "TRANSHIP_RIG_TEMPLATES")
	text, err := os.ReadFile(filepath.Join(dir, stack+".template.json"))
	require.NoError(t, err)
	var document struct {
		Resources map[string]resource `json:"Resources"`
	}
	require.NoError(t, json.Unmarshal(text, &document))
	require.NotEmpty(t, document.Resources)
	return document.Resources
}

func (r resource) text(name string) string {
	s, _ := r.Properties[name].(string)
	return s
}

func (r resource) number(name string) int {
	n, _ := r.Properties[name].(float64)
	return int(n)
}

// TestDeployed reads everything back and compares it with the template: the emulator
// drops some properties silently.
func TestDeployed(t *testing.T) {
	t.Parallel()
	api := cloudformation.NewFromConfig(rigWorld.aws())
	for _, stack := range []string{"tranship-migrate", "tranship-app"} {
		described, err := api.DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{StackName: &stack})
		require.NoError(t, err)
		require.Contains(t, []types.StackStatus{types.StackStatusCreateComplete, types.StackStatusUpdateComplete}, described.Stacks[0].StackStatus)
		physical := map[string]string{}
		resources, err := api.DescribeStackResources(t.Context(), &cloudformation.DescribeStackResourcesInput{StackName: &stack})
		require.NoError(t, err)
		for _, r := range resources.StackResources {
			physical[aws.ToString(r.LogicalResourceId)] = aws.ToString(r.PhysicalResourceId)
		}
		for id, want := range template(t, stack) {
			if want.Type == "AWS::CDK::Metadata" {
				continue
			}
			require.NotEmpty(t, physical[id], "%s %s was not made", want.Type, id)
			switch want.Type {
			case "AWS::SQS::Queue":
				checkQueue(t, physical[id], want)
			case "AWS::Lambda::Function":
				checkFunction(t, physical[id], want)
			case "AWS::Lambda::EventSourceMapping":
				checkMapping(t, physical[id], want)
			}
		}
	}
	sweeps := findSchedule(t, "tranship-sweep")
	require.NotNil(t, sweeps)
	require.Equal(t, "rate(1 minute)", aws.ToString(sweeps.ScheduleExpression))
	require.NotNil(t, findSchedule(t, "tranship-repair"))
}

func checkQueue(t *testing.T, url string, want resource) {
	t.Helper()
	got, err := sqs.NewFromConfig(rigWorld.aws()).GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameAll},
	})
	require.NoError(t, err, url)
	name := want.text("QueueName")
	require.True(t, strings.HasSuffix(got.Attributes["QueueArn"], name), name)
	if seconds := want.number("VisibilityTimeout"); seconds > 0 {
		require.Equal(t, strconv.Itoa(seconds), got.Attributes["VisibilityTimeout"], name)
	}
	if redrive, ok := want.Properties["RedrivePolicy"].(map[string]any); ok {
		require.Contains(t, got.Attributes["RedrivePolicy"], `"maxReceiveCount"`, name)
		receives, _ := redrive["maxReceiveCount"].(float64)
		require.Contains(t, got.Attributes["RedrivePolicy"], strconv.Itoa(int(receives)), name)
	}
}

func checkFunction(t *testing.T, name string, want resource) {
	t.Helper()
	got, err := lambda.NewFromConfig(rigWorld.aws()).GetFunction(t.Context(), &lambda.GetFunctionInput{FunctionName: &name})
	require.NoError(t, err, name)
	require.Equal(t, want.number("MemorySize"), int(aws.ToInt32(got.Configuration.MemorySize)), name)
	if name != "tranship-worker" { // TestBoundedAttempts changes it
		require.Equal(t, want.number("Timeout"), int(aws.ToInt32(got.Configuration.Timeout)), name)
	}
	require.Equal(t, "provided.al2023", string(got.Configuration.Runtime), name)
	environment, _ := want.Properties["Environment"].(map[string]any)
	variables, _ := environment["Variables"].(map[string]any)
	for key := range variables {
		require.Contains(t, got.Configuration.Environment.Variables, key, name)
	}
	for key, value := range got.Configuration.Environment.Variables {
		require.NotContains(t, strings.ToLower(key), "password", name)
		require.NotContains(t, value, "password", name)
	}
	if reserved := want.number("ReservedConcurrentExecutions"); reserved > 0 {
		require.NotNil(t, got.Concurrency, name)
		require.Equal(t, reserved, int(aws.ToInt32(got.Concurrency.ReservedConcurrentExecutions)), name)
	}
}

func checkMapping(t *testing.T, id string, want resource) {
	t.Helper()
	got, err := lambda.NewFromConfig(rigWorld.aws()).GetEventSourceMapping(t.Context(), &lambda.GetEventSourceMappingInput{UUID: &id})
	require.NoError(t, err)
	require.Equal(t, want.number("BatchSize"), int(aws.ToInt32(got.BatchSize)))
	require.NotEmpty(t, got.FunctionResponseTypes, "partial batches are answered")
}
