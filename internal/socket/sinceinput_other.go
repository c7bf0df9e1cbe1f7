//go:build !linux

package socket

import (
	"math"
	"time"
)

// SinceInput returns the largest duration, for developers' machines.
func (c *Conn) SinceInput() time.Duration { return math.MaxInt64 }
