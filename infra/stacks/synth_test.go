package stacks_test

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/infra/stacks"
	"github.com/tranship-io/tranship/infra/transhipcdk"
)

// variants are the installations that the tests look at. Each is synthesized once.
var variants = map[string]func() *stacks.Settings{
	"idle": func() *stacks.Settings { return &stacks.Settings{} },
	"warm": func() *stacks.Settings {
		return &stacks.Settings{Profile: stacks.Warm, Buckets: []string{"lake"}, AlarmTopic: "arn:aws:sns:eu-west-1:111122223333:people"}
	},
	"nat": func() *stacks.Settings {
		off := false
		return &stacks.Settings{NatGateway: true, Fargate: &off, Authorization: transhipcdk.IAM, MaxACU: 8}
	},
	"existing": func() *stacks.Settings {
		return &stacks.Settings{VPC: &transhipcdk.ExistingVPC{
			ID: "vpc-1", Subnets: []string{"subnet-1", "subnet-2"}, AvailabilityZones: []string{"eu-west-1a", "eu-west-1b"},
		}}
	},
	"everything": func() *stacks.Settings {
		return &stacks.Settings{
			OIDC: json.RawMessage(`[{"issuer":"https://id.example"}]`), Webhooks: json.RawMessage(`{"allow_http":true}`),
			SMTPURL: "smtps://relay.example:465", SMTPFrom: "tranship@example.com",
		}
	},
	"own": ownDatabase,
	"restored": func() *stacks.Settings {
		return &stacks.Settings{Profile: stacks.Warm, Network: transhipcdk.Private, Database: &stacks.Database{
			URL: "postgres://postgres@restored.example:5432/tranship?sslmode=verify-full", ResourceID: "cluster-RESTORED", MaxConnections: 823,
		}}
	},
}

// ownDatabase are the settings of an installation on any PostgreSQL, as on an
// emulator.
func ownDatabase() *stacks.Settings {
	return &stacks.Settings{
		Architecture: transhipcdk.AMD64, Disposable: true, WorkerSeconds: 15,
		Database: &stacks.Database{
			URL: "postgres://u@127.0.0.1:5432/tranship?sslmode=disable", SecretARN: "arn:aws:secretsmanager:eu-west-1:111122223333:secret:db-AbCdEf", MaxConnections: 823,
		},
		Tasks: &stacks.Tasks{Cluster: "c", TaskDefinition: "worker", Subnets: []string{"subnet-1"}},
	}
}

// all names of variants, in order.
func all() []string {
	names := make([]string, 0, len(variants))
	for name := range variants {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// resource is one of a template.
type resource struct {
	ID             string         `json:"-"`
	Type           string         `json:"Type"`
	Properties     map[string]any `json:"Properties"`
	Metadata       map[string]any `json:"Metadata"`
	DeletionPolicy string         `json:"DeletionPolicy"`
	// Path of the construct, without the stack's.
	Path string `json:"-"`
}

// template is a synthesized stack.
type template struct {
	Stack     string               `json:"-"`
	Resources map[string]*resource `json:"Resources"`
	Outputs   map[string]any       `json:"Outputs"`
}

// of returns the resources of a type, by path.
func (t *template) of(kind string) []*resource {
	var out []*resource
	for _, r := range t.Resources {
		if r.Type == kind {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *resource) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// installation is a variant's templates, by the stacks' parts.
type installation struct {
	dir       string
	templates map[string]*template
}

// everywhere returns the resources of a type in all stacks.
func (i *installation) everywhere(kind string) []*resource {
	var out []*resource
	for _, part := range []string{"platform", "migrate", "app"} {
		if t := i.templates[part]; t != nil {
			out = append(out, t.of(kind)...)
		}
	}
	return out
}

// cache of what was synthesized: a synthesis takes seconds.
type cache struct {
	mu   sync.Mutex
	made map[string]*installation
}

var synthesized = &cache{made: map[string]*installation{}}

func synth(t *testing.T, variant string) *installation {
	t.Helper()
	synthesized.mu.Lock()
	defer synthesized.mu.Unlock()
	if i := synthesized.made[variant]; i != nil {
		return i
	}
	i, err := synthesize(variants[variant](), root)
	require.NoError(t, err)
	synthesized.made[variant] = i
	return i
}

func synthesize(s *stacks.Settings, root string) (*installation, error) {
	out, err := os.MkdirTemp(root, "cdk.out-")
	if err != nil {
		return nil, err
	}
	app := awscdk.NewApp(&awscdk.AppProps{
		Outdir: jsii.String(out),
		// The command line does this otherwise.
		Context: &map[string]any{"aws:cdk:enable-path-metadata": true},
	})
	if _, err := stacks.New(app, s, root); err != nil {
		return nil, err
	}
	app.Synth(nil)
	i := &installation{dir: out, templates: map[string]*template{}}
	files, err := filepath.Glob(filepath.Join(out, "*.template.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		t := &template{Stack: strings.TrimSuffix(filepath.Base(file), ".template.json")}
		if err := json.Unmarshal(text, t); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for id, r := range t.Resources {
			r.ID = id
			path, _ := r.Metadata["aws:cdk:path"].(string)
			r.Path = strings.TrimSuffix(strings.TrimPrefix(path, t.Stack+"/"), "/Resource")
		}
		i.templates[t.Stack[strings.LastIndex(t.Stack, "-")+1:]] = t
	}
	return i, nil
}

// root stands for a checkout whose functions and image were built.
var root string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "infra-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	defer jsii.Close()
	root = dir
	if err := build(root); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// build leaves what make functions would, but for the programs in it.
func build(root string) error {
	folder := filepath.Join(root, "dist", "functions")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, f := range []string{"api", "authorizer", "compile", "worker", "dispatch", "project", "deliver", "sweep", "inspect", "migrate"} {
		file, err := os.Create(filepath.Join(folder, f+".zip"))
		if err != nil {
			return err
		}
		z := zip.NewWriter(file)
		w, err := z.Create("bootstrap")
		if err != nil {
			return err
		}
		if _, err := w.Write([]byte(f)); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(root, "dist", "image.digest"), []byte("sha256:"+strings.Repeat("0", 64)+"\n"), 0o644)
}
