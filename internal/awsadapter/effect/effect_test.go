package effect

import (
	"errors"
	"testing"

	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/operations"
)

// What a call's error says about its effect: surely not, for now or for good, or
// nobody knows.
func TestOf(t *testing.T) {
	require.NoError(t, Of(nil, "x"))
	api := func(code string) error { return &smithy.GenericAPIError{Code: code, Message: "no"} }
	var later *operations.LaterError
	var refused *operations.RefusedError
	for _, code := range []string{"ThrottlingException", "AccessDeniedException", "ResourceNotFoundException"} {
		err := Of(api(code), "set schedule %s", "s")
		require.ErrorAs(t, err, &later)
		require.ErrorContains(t, err, "set schedule s: api error "+code)
	}
	require.ErrorAs(t, Of(api("ValidationException"), "x"), &refused)
	for _, err := range []error{api("InternalServerException"), errors.New("the connection broke")} {
		of := Of(err, "x")
		require.ErrorIs(t, of, err)
		require.NotErrorAs(t, of, &later)
		require.NotErrorAs(t, of, &refused)
	}
}
