package rates

import (
	"math/rand/v2"
	"time"
)

// Jitter returns a random duration between d·(1−share) and d·(1+share). Processes that start at the same time use it
// so as not to act at the same moments.
func Jitter(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * (1 - share + 2*share*rand.Float64()))
}
