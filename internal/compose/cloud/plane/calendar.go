package plane

import (
	"time"

	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/internal/awsadapter/schedulegroup"
)

// Calendar keeps EventBridge Scheduler's copies of users' schedules, in functions
// that change or fire these.
func (p *Plane) Calendar() *schedules.Mirror {
	m := &schedules.Mirror{Wakes: p.DB.Schedules(), Runner: p.Operations, Now: time.Now, Platform: schedulegroup.New(p.AWS, schedulegroup.Config{
		Group: p.Env.Need("TRANSHIP_SCHEDULE_GROUP"), Role: p.Env.Need("TRANSHIP_SCHEDULE_ROLE"), Function: p.Env.Need("TRANSHIP_COMPILE_FUNCTION"),
		DeadLetters: p.Env.Get("TRANSHIP_SCHEDULE_DEAD_LETTERS", ""),
	})}
	p.Operations.Effects[schedules.KindMoved] = m
	return m
}

// Alarm is what wakes the sweep at an instant after it was disarmed.
func (p *Plane) Alarm() *schedulegroup.Bell {
	return schedulegroup.NewBell(p.AWS, schedulegroup.Config{
		Group: p.Env.Need("TRANSHIP_SCHEDULE_GROUP"), Role: p.Env.Need("TRANSHIP_SCHEDULE_ROLE"), Function: p.Env.Need("TRANSHIP_SWEEP_FUNCTION"),
		DeadLetters: p.Env.Get("TRANSHIP_SCHEDULE_DEAD_LETTERS", ""),
	}, p.Installation+"-alarm")
}
