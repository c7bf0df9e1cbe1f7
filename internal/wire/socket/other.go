//go:build !linux

package socket

import "time"

// Substitutes for what only Linux has, so that adbuffer builds on developers' machines.

// HungUp calls Peek: it cannot detect an end behind unread bytes. It must not run at the same time as
// a Read.
func (c *Conn) HungUp() bool { return c.Peek() == Ended }

// Failed returns false.
func (c *Conn) Failed() bool { return false }

// SinceInput returns ok false: the time of the last input is unknown.
func (c *Conn) SinceInput() (since time.Duration, ok bool) { return 0, false }

// Watch reports nothing: requests of clients that have disconnected end at their deadlines.
type Watch struct{}

// NewWatch returns nil; the methods accept nil.
func NewWatch() (*Watch, error) { return nil, nil }

func (*Watch) Add(*Conn, Watcher)               {}
func (*Watch) AwaitHangUp(*Conn, Watcher)       {}
func (*Watch) AwaitArrival(*Conn, Watcher) bool { return false }
func (*Watch) Remove(*Conn, Watcher)            {}
func (*Watch) Close() error                     { return nil }
