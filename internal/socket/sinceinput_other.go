//go:build !linux

package socket

import "time"

// SinceInput knows nothing on developers' machines.
func (c *Conn) SinceInput() (since time.Duration, ok bool) { return 0, false }
