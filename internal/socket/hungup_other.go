//go:build !linux

package socket

// HungUp is Peek, for developers' machines: it cannot see an end behind bytes
// that have not been read. It must not run at the same time as a Read.
func (c *Conn) HungUp() bool { return c.Peek() == Ended }

// Failed reports false, for developers' machines.
func (c *Conn) Failed() bool { return false }
