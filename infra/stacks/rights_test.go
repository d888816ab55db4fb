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

// statement of a policy, with whom it gives rights.
type statement struct {
	who, sid, effect   string
	actions, resources []string
	condition          any
	principal          any
}

// exceptions are the statements whose resource has a wildcard, and why. Each ends in
// docs/security.md.
var exceptions = map[string]string{
	"WriteLogs":       "log streams are named at run time",
	"KeepSchedules":   "schedules are named by their ids; the group is the installation's own",
	"ListSchedules":   "IAM knows no resource for it; names only, and of this account",
	"ReadSecrets":     "secrets below NAME/connections, which connections refer to by name",
	"UseObjects":      "objects in the buckets that the property names",
	"RunTasks":        "revisions of the one family, in the one cluster",
	"WatchTasks":      "tasks are named at run time; of the one cluster",
	"AttachToNetwork": "EC2 knows no resource for it; Lambda itself uses it, and NotFromTheCode denies it to the code",
	"LogInToRegistry": "ECR knows no resource for it",
	"KeyOfTheAccount": "the account's administrators keep the key; IAM policies alone give its use",
}

func list(v any) []string {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		var out []string
		for _, e := range v {
			out = append(out, plain(e))
		}
		return out
	default:
		return []string{plain(v)}
	}
}

// statements walks every policy of an installation.
func statements(t *testing.T, i *installation) []statement {
	t.Helper()
	var out []statement
	for _, part := range []string{"platform", "migrate", "app"} {
		stack := i.templates[part]
		if stack == nil {
			continue
		}
		add := func(who string, document any) {
			for _, s := range at(document, "Statement").([]any) {
				resources, isList := at(s, "Resource").([]any)
				if !isList {
					resources = []any{at(s, "Resource")}
				}
				st := statement{
					who: who, sid: plain(at(s, "Sid")), effect: plain(at(s, "Effect")),
					actions: list(at(s, "Action")), condition: at(s, "Condition"), principal: at(s, "Principal"),
				}
				for _, r := range resources {
					st.resources = append(st.resources, i.resourceOf(stack, r))
				}
				out = append(out, st)
			}
		}
		for _, p := range stack.of("AWS::IAM::Policy") {
			require.Len(t, p.Properties["Roles"], 1)
			add(whoHas(p.Path), p.Properties["PolicyDocument"])
		}
		for _, r := range stack.of("AWS::IAM::Role") {
			policies, _ := r.Properties["Policies"].([]any)
			for _, p := range policies {
				add(whoHas(r.Path), at(p, "PolicyDocument"))
			}
			for _, managed := range list(r.Properties["ManagedPolicyArns"]) {
				require.Equal(t, "CloudWatchRole", whoHas(r.Path), "AWS's own policies are wide: %s", managed)
			}
		}
		for _, k := range stack.of("AWS::KMS::Key") {
			add("key", k.Properties["KeyPolicy"])
		}
		for _, q := range stack.of("AWS::SQS::QueuePolicy") {
			add("queue", q.Properties["PolicyDocument"])
		}
	}
	return out
}

// whoHas turns the path of a role or its policy into the function's name.
func whoHas(path string) string {
	parts := strings.Split(path, "/")
	for n, p := range parts {
		switch p {
		case "role":
			return parts[n-1]
		case "start":
			return "task's start"
		case "CloudWatchRole":
			return p
		}
	}
	return path
}

// TestLeastPrivilege walks every statement of every variant.
func TestLeastPrivilege(t *testing.T) {
	for _, name := range all() {
		t.Run(name, func(t *testing.T) {
			i := synth(t, name)
			all := statements(t, i)
			require.Greater(t, len(all), 30)
			for _, s := range all {
				name := s.who + " " + s.sid
				if s.effect == "Deny" {
					continue
				}
				if s.who == "key" {
					require.Equal(t, map[string]any{"AWS": map[string]any{"Fn::Join": []any{"", []any{"arn:", map[string]any{"Ref": "AWS::Partition"}, ":iam::", map[string]any{"Ref": "AWS::AccountId"}, ":root"}}}},
						s.principal, "the key's policy trusts the account alone")
					continue
				}
				if s.who == "queue" {
					require.Equal(t, "events.amazonaws.com", plain(at(s.principal, "Service")), name)
					require.NotNil(t, at(s.condition, "ArnEquals", "aws:SourceArn"), "%s: of the one rule (confused deputy)", name)
					continue
				}
				require.NotEmpty(t, s.sid, "%s %v: a statement says what it is for", s.who, s.actions)
				for _, a := range s.actions {
					require.NotContains(t, a, "*", name)
					if a == "iam:PassRole" {
						require.NotEmpty(t, plain(at(s.condition, "StringEquals", "iam:PassedToService")), "%s: to one service", name)
					}
				}
				for _, r := range s.resources {
					require.NotEmpty(t, r, name)
					if strings.Contains(r, "*") {
						require.NotEmpty(t, exceptions[s.sid], "%s: %s has a wildcard and no reason", name, r)
					}
				}
			}
		})
	}
}

// TestWhoMayTakeOnRoles: services other than Lambda, which only takes on roles that
// the caller may pass, act for this account and the one resource (confused deputy).
func TestWhoMayTakeOnRoles(t *testing.T) {
	for _, name := range all() {
		t.Run(name, func(t *testing.T) {
			i := synth(t, name)
			for _, r := range i.everywhere("AWS::IAM::Role") {
				for _, s := range at(r.Properties["AssumeRolePolicyDocument"], "Statement").([]any) {
					service := plain(at(s, "Principal", "Service"))
					switch service {
					case "lambda.amazonaws.com", "apigateway.amazonaws.com":
					case "scheduler.amazonaws.com":
						require.Equal(t, "scheduler:schedule-group/tranship", i.resourceOf(i.templates["app"], at(s, "Condition", "StringEquals", "aws:SourceArn")), r.Path)
						require.Equal(t, "${AWS::AccountId}", plain(at(s, "Condition", "StringEquals", "aws:SourceAccount")), r.Path)
					case "ecs-tasks.amazonaws.com":
						require.Equal(t, "${AWS::AccountId}", plain(at(s, "Condition", "StringEquals", "aws:SourceAccount")), r.Path)
					default:
						t.Errorf("%s may be taken on by %s", r.Path, service)
					}
				}
			}
			for _, p := range i.everywhere("AWS::Lambda::Permission") {
				require.NotEmpty(t, plain(p.Properties["SourceArn"]), "%s: by the one API or rule", p.Path)
			}
		})
	}
}

// markers of the table in docs/security.md.
const (
	tableBegin = "<!-- rights: written by TestRightsTable -->\n"
	tableEnd   = "<!-- end of rights -->\n"
)

// TestRightsTable keeps the table in docs/security.md equal to the templates;
// TRANSHIP_UPDATE=1 writes it.
func TestRightsTable(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "security.md")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), tableBegin)
	require.True(t, ok, "docs/security.md has the table's markers")
	have, after, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok, "docs/security.md has the table's markers")
	want := table(t, synth(t, "warm"))
	if os.Getenv("TRANSHIP_UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(before+tableBegin+want+tableEnd+after), 0o644))
		return
	}
	require.Equal(t, want, have, "docs/security.md: TRANSHIP_UPDATE=1 writes the table")
}

func table(t *testing.T, i *installation) string {
	t.Helper()
	var rows, reasons []string
	used := map[string]bool{}
	who := map[string][]string{}
	for _, s := range statements(t, i) {
		if s.who == "queue" || s.who == "key" {
			continue
		}
		sid := s.sid
		if s.effect == "Deny" {
			sid += " (deny)"
		}
		if s.sid == "WriteLogs" {
			s.resources = []string{"logs:log-group:<its own>:log-stream:*"}
		}
		used[s.sid] = true
		right := fmt.Sprintf("| %s | %s | %s |", sid, code(s.actions), code(s.resources))
		who[right] = append(who[right], s.who)
	}
	for right, roles := range who {
		slices.Sort(roles)
		rows = append(rows, fmt.Sprintf("%s %s |\n", right, strings.Join(slices.Compact(roles), ", ")))
	}
	slices.Sort(rows)
	for sid, why := range exceptions {
		if used[sid] {
			reasons = append(reasons, fmt.Sprintf("| %s | %s |\n", sid, why))
		}
	}
	slices.Sort(reasons)
	return "| for | may | of | who |\n|---|---|---|---|\n" + strings.Join(rows, "") +
		"\nWildcards, and why:\n\n| for | reason |\n|---|---|\n" + strings.Join(reasons, "")
}

func code(values []string) string {
	out := make([]string, len(values))
	for n, v := range values {
		out[n] = "`" + v + "`"
	}
	return strings.Join(out, " ")
}
