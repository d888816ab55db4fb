// Package plugintest proves that the plug-in of LocalStack's core (localstack/plugin)
// runs functions as AWS does: environments, concurrency, timeouts, crashes, memory,
// freezing, logs, API Gateway authorizers. All of it is seen from outside, through
// AWS's own interfaces and the process table.
package plugintest
