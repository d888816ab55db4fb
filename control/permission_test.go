package control_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
)

// may is the decision table: the greatest set of each role, in words of its own.
var may = map[control.Role][]control.Permission{
	control.RoleViewer: {
		"connections:read", "inspections:read", "metrics:read", "notifications:read",
		"pipelines:read", "runs:read", "schedules:read",
	},
	control.RoleOperator: {
		"connections:read", "inspections:read", "metrics:read", "notifications:read",
		"pipelines:read", "runs:read", "schedules:read",
		"inspections:start", "notifications:replay", "pipelines:operate", "runs:operate", "schedules:operate",
	},
	control.RoleAdmin: control.Permissions(),
	"":                {},
	"root":            {},
}

func TestAuthorize(t *testing.T) {
	for role, allowed := range may {
		for _, p := range control.Permissions() {
			err := control.Authorize(control.Actor{Role: role}, p)
			if contains(allowed, p) {
				require.NoError(t, err, "%s %s", role, p)
				continue
			}
			var forbidden *control.ForbiddenError
			require.ErrorAs(t, err, &forbidden, "%s %s", role, p)
			require.Equal(t, string(p), forbidden.Permission)
		}
	}
	require.Error(t, control.Authorize(control.Actor{Role: control.RoleAdmin}, "runs:everything"))
}

func TestScopesNarrowAndNeverWiden(t *testing.T) {
	a := control.Actor{Role: control.RoleViewer, Scopes: []string{"runs:read", "runs:operate"}}
	require.NoError(t, control.Authorize(a, control.ReadRuns))
	require.Error(t, control.Authorize(a, control.OperateRuns))
	require.Error(t, control.Authorize(a, control.ReadPipelines))
}

func TestRolesCover(t *testing.T) {
	order := []control.Role{"root", control.RoleViewer, control.RoleOperator, control.RoleAdmin}
	for i, r := range order {
		for j, other := range order {
			require.Equal(t, j > 0 && i >= j, r.Covers(other), "%s %s", r, other)
		}
	}
}

func contains(list []control.Permission, p control.Permission) bool {
	for _, x := range list {
		if x == p {
			return true
		}
	}
	return false
}
