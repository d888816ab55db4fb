package events

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestDecodeUnknown(t *testing.T) {
	f := golden(t, RunStarted{Slots: 2})
	for name, change := range map[string]func(*Fact){
		"a type of a newer release":    func(f *Fact) { f.Type = "run.teleported" },
		"a version of a newer release": func(f *Fact) { f.Version = 2 },
		"no version":                   func(f *Fact) { f.Version = 0 },
		"no type":                      func(f *Fact) { f.Type = "" },
	} {
		t.Run(name, func(t *testing.T) {
			f := f
			change(&f)
			_, err := f.Decode()
			var unknown *UnknownError
			require.ErrorAs(t, err, &unknown)
			require.Equal(t, f.Type, unknown.Type)
			require.Equal(t, f.Version, unknown.Version)
			require.Contains(t, err.Error(), "not known to this version of tranship")
		})
	}
}

func TestDecodeBroken(t *testing.T) {
	f := golden(t, RunStarted{Slots: 2})
	for _, payload := range []string{``, `{`, `[]`, `{"slots":"two"}`, `{"slots":1.5}`, `{"slots":99999999999999999999}`} {
		f.Payload = json.RawMessage(payload)
		_, err := f.Decode()
		require.Error(t, err, payload)
		var unknown *UnknownError
		require.NotErrorAs(t, err, &unknown, payload)
		require.Contains(t, err.Error(), string(TypeRunStarted))
	}
}

// A field that a newer release added is no reason to refuse a fact.
func TestDecodeIgnoresNewFields(t *testing.T) {
	f := golden(t, RunStarted{Slots: 2})
	f.Payload = json.RawMessage(`{"slots":3,"colour":"blue"}`)
	p, err := f.Decode()
	require.NoError(t, err)
	require.Equal(t, &RunStarted{Slots: 3}, p)
}

func TestNewIsUTC(t *testing.T) {
	at := time.Date(2026, 11, 1, 1, 30, 0, 0, time.FixedZone("EDT", -4*3600))
	f, err := New(uuid.New(), at, RunPaused{Reason: "stop"})
	require.NoError(t, err)
	require.True(t, f.At.Equal(at))
	require.Equal(t, time.UTC, f.At.Location())
	require.Equal(t, TypeRunPaused, f.Type)
	require.Equal(t, 1, f.Version)
	g, err := New(f.RunID, at, RunPaused{Reason: "stop"})
	require.NoError(t, err)
	require.NotEqual(t, f.ID, g.ID)
}

// FuzzDecode: whatever bytes claim to be a fact, decoding says what it is or
// refuses it, and what it accepts is written and read again as the same.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no golden facts to begin with: %v", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"type":"run.started","version":1,"payload":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var fact Fact
		if err := json.Unmarshal(b, &fact); err != nil {
			return
		}
		p, err := fact.Decode()
		if err != nil {
			if p != nil {
				t.Fatalf("an error and a payload: %v, %v", err, p)
			}
			return
		}
		typ, version := p.FactType()
		if typ != fact.Type || version != fact.Version {
			t.Fatalf("decoded %s version %d as %s version %d", fact.Type, fact.Version, typ, version)
		}
		body, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		fact.Payload = body
		again, err := fact.Decode()
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		second, err := json.Marshal(again)
		if err != nil || !bytes.Equal(second, body) {
			t.Fatalf("decoding changed the payload: %s, then %s (%v)", body, second, err)
		}
	})
}
