package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
)

// migrateTime is the function's timeout and what its start may take.
const migrateTime = 16 * time.Minute

// migrate invokes the function and waits for its answer.
func migrate(ctx context.Context, config aws.Config, function string) error {
	ctx, cancel := context.WithTimeout(ctx, migrateTime)
	defer cancel()
	client := lambda.NewFromConfig(config, func(o *lambda.Options) {
		o.HTTPClient = &http.Client{} // the answer may take as long as the context lets it
		// A call that is repeated while the first still runs would only be refused:
		// the function is reserved for one at a time.
		o.RetryMaxAttempts = 1
	})
	fmt.Printf("migrating the database by %s\n", function)
	// A function in a VPC is not there at once, nor after weeks without a call.
	if err := lambda.NewFunctionActiveV2Waiter(client).Wait(ctx, &lambda.GetFunctionInput{FunctionName: &function}, 5*time.Minute); err != nil {
		return fmt.Errorf("wait for function %s: %w", function, err)
	}
	if err := lambda.NewFunctionUpdatedV2Waiter(client).Wait(ctx, &lambda.GetFunctionInput{FunctionName: &function}, 5*time.Minute); err != nil {
		return fmt.Errorf("wait for function %s: %w", function, err)
	}
	out, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: &function, Payload: []byte(`{}`)})
	if err != nil {
		return fmt.Errorf("invoke function %s: %w", function, err)
	}
	if out.FunctionError != nil {
		return fmt.Errorf("function %s failed (its log group has more): %s", function, out.Payload)
	}
	fmt.Printf("migrated: %s\n", out.Payload)
	return nil
}
