package files

import (
	"errors"
	"net"
	"net/http"

	"github.com/aws/smithy-go"

	"github.com/tranship-io/tranship/engine"
)

// httpStatus is what the SDK's response errors answer.
type httpStatus interface{ HTTPStatusCode() int }

func statusOf(err error) int {
	var s httpStatus
	if errors.As(err, &s) {
		return s.HTTPStatusCode()
	}
	return 0
}

func codeOf(err error) string {
	var e smithy.APIError
	if errors.As(err, &e) {
		return e.ErrorCode()
	}
	return ""
}

// isMissing tells that there is no such object or upload.
func isMissing(err error) bool {
	switch codeOf(err) {
	case "NoSuchKey", "NotFound", "NoSuchUpload":
		return true
	}
	return false
}

// isConflict tells that a conditional write did not find what it demands.
func isConflict(err error) bool {
	switch codeOf(err) {
	case "PreconditionFailed", "ConditionalRequestConflict":
		return true
	}
	return statusOf(err) == http.StatusPreconditionFailed
}

// classifyS3 gives an error its class and says what can be done.
func classifyS3(doing, bucket string, err error) error {
	switch code := codeOf(err); code {
	case "NoSuchBucket":
		return engine.Permanentf("create the bucket, or correct the path", "%s: there is no bucket %q", doing, bucket)
	case "AccessDenied", "Forbidden":
		return engine.Permanentf("grant s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject and the multipart rights on the bucket",
			"%s: access to bucket %q is denied", doing, bucket)
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken":
		return engine.Permanentf("check the AWS credentials of this process", "%s: %s: %w", doing, code, err)
	case "BadDigest", "XAmzContentChecksumMismatch", "InvalidDigest":
		// The bytes changed on the way: S3 kept nothing, and sending them again may do.
		return engine.Retryablef("%s: S3 found another checksum: %w", doing, err)
	case "PermanentRedirect", "AuthorizationHeaderMalformed":
		return engine.Permanentf("set region to the bucket's", "%s: bucket %q is in another region: %w", doing, bucket, err)
	case "NotImplemented":
		return engine.Permanentf("use an S3 server that knows conditional writes", "%s: %w", doing, err)
	}
	status := statusOf(err)
	var network net.Error
	switch {
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusConflict:
		return engine.Retryablef("%s: %w", doing, err)
	case status == http.StatusNotFound:
		return engine.Permanentf("create the bucket, or correct the path", "%s: bucket %q: %w", doing, bucket, err)
	case status == http.StatusForbidden:
		return engine.Permanentf("check the AWS credentials and rights of this process", "%s: access to bucket %q is denied", doing, bucket)
	case errors.As(err, &network):
		return engine.Retryablef("%s: %w", doing, err)
	case status == 0:
		var op *smithy.OperationError
		if errors.As(err, &op) {
			return engine.Retryablef("%s: %w", doing, err)
		}
	}
	return engine.Permanentf("", "%s: %w", doing, err)
}
