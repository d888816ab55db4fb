package projection

import (
	"math"
	"slices"
	"time"
)

// classes is how many classes double a duration: a percentile is told to within
// 1/16 of an octave, about 4.4 %.
const classes = 16

// DurationClass is the class of a duration. Classes of equal ratio keep the
// percentiles of any number of runs in a few counters, which add up over hours
// and pipelines as the percentiles themselves would not.
func DurationClass(d time.Duration) int {
	ms := d.Milliseconds()
	if ms <= 1 {
		return 0
	}
	return int(math.Ceil(math.Log2(float64(ms)) * classes))
}

// Percentile returns the upper end of the class in which the given part (0 to 1)
// of the durations ends; 0 if there are none.
func Percentile(durations map[int]int64, part float64) time.Duration {
	var total int64
	keys := make([]int, 0, len(durations))
	for class, n := range durations {
		total += n
		keys = append(keys, class)
	}
	if total == 0 {
		return 0
	}
	slices.Sort(keys)
	want := int64(math.Ceil(part * float64(total)))
	var sum int64
	for _, class := range keys {
		if sum += durations[class]; sum >= want {
			return upperEnd(class)
		}
	}
	return upperEnd(keys[len(keys)-1])
}

func upperEnd(class int) time.Duration {
	return time.Duration(math.Round(math.Exp2(float64(class)/classes)*1000)) * time.Microsecond
}
