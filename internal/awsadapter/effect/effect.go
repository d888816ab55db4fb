// Package effect tells what an error of an AWS call says about the call's effect.
package effect

import (
	"errors"
	"fmt"

	"github.com/aws/smithy-go"

	"github.com/tranship-io/tranship/control/operations"
)

// Of turns an error into what operations decide by: some codes say that nothing
// happened, for now or for good; after any other error it may have happened or not.
// The text names what failed.
func Of(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	text := fmt.Errorf(format+": %w", append(args, err)...)
	var api smithy.APIError
	if !errors.As(err, &api) {
		return text
	}
	switch api.ErrorCode() {
	case "ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "LimitExceededException", "ServiceQuotaExceededException",
		"ServiceUnavailable", "CapacityException", "BlockedException",
		// Somebody may grant the right, or the deployment make the thing.
		"AccessDeniedException", "AccessDenied", "UnrecognizedClientException", "ExpiredTokenException",
		"ResourceNotFoundException", "ClusterNotFoundException":
		return &operations.LaterError{Err: text}
	case "ValidationException", "InvalidParameterException", "ClientException", "UnsupportedFeatureException",
		"PlatformUnknownException", "PlatformTaskDefinitionIncompatibilityException":
		return &operations.RefusedError{Err: text}
	}
	return text
}
