package runner

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// asideLine is one row set aside, as the JSONL file has it. The fence numbers
// make a line recognisable that a crash between file and checkpoint wrote twice.
type asideLine struct {
	RunID    string `json:"run_id"`
	Resource string `json:"resource"`
	Split    string `json:"split"`
	Epoch    int64  `json:"epoch"`
	Claim    int64  `json:"claim"`
	engine.SetAsideRow
}

// setAside writes rows that did not fit to the file that the policy names,
// durably, before the checkpoint passes them (invariant 1).
func (r *run) setAside(rp *engine.ResourcePlan, sp *engine.ClaimedSplit, epoch int64, rc *engine.Receipt) error {
	if len(rc.SetAsideRows) == 0 {
		return nil
	}
	path, ok := strings.CutPrefix(rp.Target.Policies.SetAside, "file:")
	if !ok || path == "" {
		return engine.Permanentf("set policies.set_aside to file:<path>", "resource %s sets rows aside, but no file for them is named", sp.Resource)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return engine.Permanentf("", "make the folder for rows set aside: %w", err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return engine.Permanentf("", "open the file for rows set aside: %w", err)
	}
	defer func() { _ = file.Close() }()
	var out []byte
	for _, row := range rc.SetAsideRows {
		line, err := json.Marshal(asideLine{RunID: r.rec.ID.String(), Resource: sp.Resource, Split: sp.ID, Epoch: epoch, Claim: sp.Claim, SetAsideRow: row})
		if err != nil {
			return fmt.Errorf("encode a row set aside of %s: %w", sp.Resource, err)
		}
		out = append(append(out, line...), '\n')
	}
	// One write, so that lines of parallel slots don't mix.
	if _, err := file.Write(out); err != nil {
		return engine.Retryablef("write rows set aside to %s: %w", path, err)
	}
	if err := file.Sync(); err != nil {
		return engine.Retryablef("write rows set aside to %s: %w", path, err)
	}
	return nil
}

func (r *run) setAsideFacts(sp *engine.ClaimedSplit, rp *engine.ResourcePlan, rc *engine.Receipt) []events.Fact {
	var facts []events.Fact
	for _, p := range rc.Policies {
		if p.Policy == engine.PolicySetAside {
			facts = append(facts, r.fact(events.RowsSetAside{Resource: sp.Resource, Column: p.Column, Rows: p.Count, Reason: p.Reason, Place: rp.Target.Policies.SetAside}))
		}
	}
	return facts
}
