//go:build !linux

package socket

// HungUp calls Peek, for developers' machines: it cannot detect an end behind unread bytes. It must
// not run at the same time as a Read.
func (c *Conn) HungUp() bool { return c.Peek() == Ended }

// Failed reports false, for developers' machines.
func (c *Conn) Failed() bool { return false }
