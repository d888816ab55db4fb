package access

import (
	"sync"
	"time"

	"github.com/tranship-io/tranship/control"
)

// How long and how many sign-ins are remembered. Every transaction checks the
// member anyway, so this only spares looking for them.
const (
	seenFor = time.Minute
	maxSeen = 10_000
)

type seenKey struct {
	organization string
	who          Identity
}

type seenActor struct {
	actor control.Actor
	until time.Time
}

type cache struct {
	mu  sync.Mutex
	all map[seenKey]seenActor
}

func newCache() *cache { return &cache{all: map[seenKey]seenActor{}} }

func (c *cache) get(organization string, who Identity, now time.Time) (control.Actor, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.all[seenKey{organization, who}]
	return s.actor, ok && now.Before(s.until)
}

func (c *cache) put(organization string, who Identity, a control.Actor, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= maxSeen {
		clear(c.all)
	}
	c.all[seenKey{organization, who}] = seenActor{a, now.Add(seenFor)}
}
