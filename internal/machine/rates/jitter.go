package rates

import (
	"math/rand/v2"
	"time"
)

// Jitter returns d, plus or minus up to share of it. So processes that start together do not act in
// step.
func Jitter(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * (1 - share + 2*share*rand.Float64()))
}
