package events

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden holds the JSON form of every fact, every field filled. A change of
// a golden file is a change of a stored form: it needs a new payload version
// unless it only adds fields.
func TestGolden(t *testing.T) {
	var want []string
	for typ, blank := range registry {
		t.Run(string(typ), func(t *testing.T) {
			p := blank()
			fill(t, reflect.ValueOf(p).Elem(), string(typ))
			f := golden(t, p)
			got, err := json.MarshalIndent(f, "", "  ")
			require.NoError(t, err)
			got = append(got, '\n')
			file := filepath.Join("testdata", string(typ)+".json")
			if *update {
				require.NoError(t, os.WriteFile(file, got, 0o644))
			}
			stored, err := os.ReadFile(file)
			require.NoError(t, err, "make it with go test ./events -run TestGolden -update")
			require.Equal(t, string(stored), string(got))

			// What was stored is read back as it was written.
			var back Fact
			require.NoError(t, json.Unmarshal(stored, &back))
			require.Equal(t, f.At, back.At)
			decoded, err := back.Decode()
			require.NoError(t, err)
			require.Equal(t, p, decoded)
		})
		want = append(want, string(typ)+".json")
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	require.NoError(t, err)
	var have []string
	for _, f := range files {
		have = append(have, filepath.Base(f))
	}
	slices.Sort(want)
	require.Equal(t, want, have, "one golden file a type, and no other")
}

// golden makes a fact whose id, run and time never change.
func golden(t *testing.T, p Payload) Fact {
	t.Helper()
	run := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
	f, err := New(run, time.Date(2026, 3, 8, 2, 30, 0, 123456789, time.FixedZone("EST", -5*3600)), p)
	require.NoError(t, err)
	require.EqualValues(t, 7, f.ID.Version())
	require.Zero(t, f.Number)
	f.ID = uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8058")
	f.Number = 42
	return f
}

// fill gives every field a value that is not zero, so that a new field shows.
func fill(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 3, 8, 7, 30, 0, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			fill(t, v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.String:
		v.SetString(`a "` + name + `" of ünï-code`)
	case reflect.Int, reflect.Int64:
		// Past 2^53, where a float64 on the way would show.
		v.SetInt(1<<53 + 1 + int64(len(name)))
	case reflect.Uint32:
		v.SetUint(1<<32 - 1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), fmt.Sprintf("%s %d", name, i))
		}
	default:
		require.Fail(t, "no sample value", "%s: a payload has a field of kind %s", name, v.Kind())
	}
}

// TestRegistryIsComplete reads the source: every Type constant and every payload
// type is in the registry, under its own name.
func TestRegistryIsComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "types.go", nil, 0)
	require.NoError(t, err)
	consts, payloads := map[string]string{}, map[string]bool{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			for _, s := range d.Specs {
				v, ok := s.(*ast.ValueSpec)
				if !ok || d.Tok != token.CONST || len(v.Values) != 1 {
					continue
				}
				if lit, ok := v.Values[0].(*ast.BasicLit); ok && strings.HasPrefix(v.Names[0].Name, "Type") {
					consts[strings.Trim(lit.Value, `"`)] = v.Names[0].Name
				}
			}
		case *ast.FuncDecl:
			if d.Name.Name == "FactType" {
				payloads[d.Recv.List[0].Type.(*ast.Ident).Name] = true
			}
		}
	}
	require.NotEmpty(t, consts)
	require.Len(t, registry, len(consts))
	require.Len(t, payloads, len(consts), "a payload for each type")
	seen := map[reflect.Type]bool{}
	for typ, blank := range registry {
		require.Contains(t, consts, string(typ))
		p := blank()
		own, version := p.FactType()
		require.Equal(t, typ, own, "registered under its own type")
		require.Positive(t, version)
		kind := reflect.TypeOf(p)
		require.Equal(t, reflect.Pointer, kind.Kind())
		require.True(t, payloads[kind.Elem().Name()], kind)
		require.False(t, seen[kind], "%s is registered twice", kind)
		seen[kind] = true
	}
}

// TestFieldNames holds the JSON names to one style.
func TestFieldNames(t *testing.T) {
	for typ, blank := range registry {
		checkNames(t, string(typ), reflect.TypeOf(blank()).Elem())
	}
}

func checkNames(t *testing.T, typ string, s reflect.Type) {
	t.Helper()
	for i := range s.NumField() {
		f := s.Field(i)
		if f.Anonymous {
			checkNames(t, typ, f.Type)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		require.Regexp(t, `^[a-z][a-z0-9_]*$`, name, "%s: %s", typ, f.Name)
	}
}
