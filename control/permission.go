package control

import (
	"fmt"
	"slices"
)

// Permission names one thing that an actor may be allowed to do; it is also what
// scopes of API keys are written in.
type Permission string

// The permissions.
const (
	ReadConnections   Permission = "connections:read"
	WriteConnections  Permission = "connections:write"
	ReadInspections   Permission = "inspections:read"
	StartInspections  Permission = "inspections:start"
	ReadPipelines     Permission = "pipelines:read"
	WritePipelines    Permission = "pipelines:write"
	OperatePipelines  Permission = "pipelines:operate" // pause, resume, reset, backfill
	ReadSchedules     Permission = "schedules:read"
	WriteSchedules    Permission = "schedules:write"
	OperateSchedules  Permission = "schedules:operate" // pause, resume
	ReadRuns          Permission = "runs:read"
	OperateRuns       Permission = "runs:operate" // start, pause, resume, cancel, retry
	ReadNotifications Permission = "notifications:read"
	WriteRules        Permission = "notifications:write"
	ReplayDeliveries  Permission = "notifications:replay"
	ReadMetrics       Permission = "metrics:read"
	RebuildMetrics    Permission = "metrics:rebuild"
	ReadMembers       Permission = "members:read"
	WriteMembers      Permission = "members:write"
	ReadKeys          Permission = "keys:read"
	WriteKeys         Permission = "keys:write"
	ReadAudit         Permission = "audit:read"
)

// needs is the least role of each permission: the one place where access is decided.
var needs = map[Permission]Role{
	ReadConnections: RoleViewer, WriteConnections: RoleAdmin,
	ReadInspections: RoleViewer, StartInspections: RoleOperator,
	ReadPipelines: RoleViewer, WritePipelines: RoleAdmin, OperatePipelines: RoleOperator,
	ReadSchedules: RoleViewer, WriteSchedules: RoleAdmin, OperateSchedules: RoleOperator,
	ReadRuns: RoleViewer, OperateRuns: RoleOperator,
	ReadNotifications: RoleViewer, WriteRules: RoleAdmin, ReplayDeliveries: RoleOperator,
	ReadMetrics: RoleViewer, RebuildMetrics: RoleAdmin,
	ReadMembers: RoleAdmin, WriteMembers: RoleAdmin,
	ReadKeys: RoleAdmin, WriteKeys: RoleAdmin,
	ReadAudit: RoleAdmin,
}

var rank = map[Role]int{RoleViewer: 1, RoleOperator: 2, RoleAdmin: 3}

// Covers tells whether the role may do all that another may; what is no role covers
// nothing and is not covered.
func (r Role) Covers(other Role) bool { return rank[other] > 0 && rank[r] >= rank[other] }

// Permissions returns every permission, sorted.
func Permissions() []Permission {
	out := make([]Permission, 0, len(needs))
	for p := range needs {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// Authorize returns a [*ForbiddenError] unless the actor's role has the
// permission and its scopes, if there are any, name it.
func Authorize(a Actor, p Permission) error {
	least, known := needs[p]
	if !known {
		return fmt.Errorf("permission %q is not in the table", p)
	}
	if rank[a.Role] < rank[least] || len(a.Scopes) > 0 && !slices.Contains(a.Scopes, string(p)) {
		return &ForbiddenError{Permission: string(p), Needs: least}
	}
	return nil
}
