package server

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tranship-io/tranship/control"
)

// maxLimits bounds how many callers are remembered: 64 bytes each and their names.
const maxLimits = 10_000

// limits counts the requests of each caller, in this process.
type limits struct {
	rate  rate.Limit
	burst int
	now   func() time.Time

	mu  sync.Mutex
	all map[string]*rate.Limiter
}

func newLimits(perSecond float64, burst int, now func() time.Time) *limits {
	return &limits{rate: rate.Limit(perSecond), burst: max(burst, 1), now: now, all: map[string]*rate.Limiter{}}
}

// take counts a request of a caller; *control.LimitError if there are too many.
func (l *limits) take(caller string) error {
	if l.rate < 0 {
		return nil
	}
	now := l.now()
	l.mu.Lock()
	one := l.all[caller]
	if one == nil {
		if len(l.all) >= maxLimits {
			l.forget(now)
		}
		one = rate.NewLimiter(l.rate, l.burst)
		l.all[caller] = one
	}
	l.mu.Unlock()
	r := one.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	r.CancelAt(now)
	return &control.LimitError{RetryAfter: wait, Message: "too many requests with this key"}
}

// forget drops callers that have their whole burst again, and any if there are none.
func (l *limits) forget(now time.Time) {
	for caller, one := range l.all {
		if one.TokensAt(now) >= float64(l.burst) {
			delete(l.all, caller)
		}
	}
	for caller := range l.all {
		if len(l.all) < maxLimits {
			return
		}
		delete(l.all, caller)
	}
}
