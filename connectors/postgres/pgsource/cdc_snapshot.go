package pgsource

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// snapshot is what pg_current_snapshot() prints: all transactions below xmin have
// ended, none from xmax on had begun, and those of xip were in progress.
type snapshot struct {
	xmin, xmax uint64
	xip        []uint64
}

// parseSnapshot reads xmin:xmax:xip,…; in progress come in order.
func parseSnapshot(text string) (snapshot, error) {
	var s snapshot
	parts := strings.Split(text, ":")
	bad := len(parts) != 3
	number := func(t string) uint64 {
		n, err := strconv.ParseUint(t, 10, 64)
		bad = bad || err != nil
		return n
	}
	if !bad {
		s.xmin, s.xmax = number(parts[0]), number(parts[1])
		if parts[2] != "" {
			for _, t := range strings.Split(parts[2], ",") {
				s.xip = append(s.xip, number(t))
			}
		}
	}
	if bad || s.xmin > s.xmax {
		return s, engine.Bugf("%q is no snapshot as the server prints them", text)
	}
	slices.Sort(s.xip)
	return s, nil
}

// sees tells whether what the transaction did is visible, if it committed.
func (s snapshot) sees(xid uint64) bool {
	if xid >= s.xmax {
		return false
	}
	_, running := slices.BinarySearch(s.xip, xid)
	return xid < s.xmin || !running
}

// covers tells whether s sees every transaction that o sees; if not, one that it
// lacks: it has committed and waits, for a standby say, before others see it.
func (s snapshot) covers(o snapshot) (bool, uint64) {
	for _, x := range s.xip {
		if o.sees(x) {
			return false, x
		}
	}
	for x := s.xmax; x < o.xmax; x++ {
		if o.sees(x) {
			return false, x
		}
	}
	return true, 0
}
