package stacks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// contract is docs/aws.md, on which functions and templates agree.
func contract(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "aws.md"))
	require.NoError(t, err)
	return string(text)
}

// section returns the part of a document below a heading.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n## "+heading+"\n")
	require.True(t, ok, "docs/aws.md has a section %q", heading)
	part, _, _ := strings.Cut(rest, "\n## ")
	return part
}

var variable = regexp.MustCompile("`(TRANSHIP_[A-Z_]+)`")

// TestEnvironmentIsTheContract: the templates set what docs/aws.md lists, and
// nothing else.
func TestEnvironmentIsTheContract(t *testing.T) {
	var listed []string
	for _, m := range variable.FindAllStringSubmatch(section(t, contract(t), "Environment of the functions"), -1) {
		listed = append(listed, m[1])
	}
	require.Greater(t, len(listed), 20)
	set := map[string]bool{}
	for _, name := range []string{"idle", "everything", "own"} {
		i := synth(t, name)
		for part, f := range functions(i) {
			env, _ := at(f.Properties, "Environment", "Variables").(map[string]any)
			for v := range env {
				set[v] = true
				if strings.HasPrefix(v, "TRANSHIP_") {
					require.Contains(t, listed, v, "%s is given to %s and not in docs/aws.md", v, part)
				}
			}
		}
		for _, task := range i.templates["app"].of("AWS::ECS::TaskDefinition") {
			for _, pair := range at(task.Properties["ContainerDefinitions"].([]any)[0], "Environment").([]any) {
				set[at(pair, "Name").(string)] = true
			}
		}
	}
	for _, v := range listed {
		require.True(t, set[v], "%s is in docs/aws.md and no template sets it", v)
	}
}

// TestFunctionsAreTheContract compares timeouts and memory with the table.
func TestFunctionsAreTheContract(t *testing.T) {
	table := section(t, contract(t), "Functions")
	built := functions(synth(t, "idle"))
	require.Len(t, built, 10)
	for name, f := range built {
		want := fmt.Sprintf("| %d s, %d MB |", number(f.Properties["Timeout"]), number(f.Properties["MemorySize"]))
		row := slices.IndexFunc(strings.Split(table, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "| `"+name+"` |") && strings.HasSuffix(line, want)
		})
		require.GreaterOrEqual(t, row, 0, "docs/aws.md: the row of %s ends in %q", name, want)
	}
}
