package exchange

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Cancel is a context.Context that its owner ends once: the requests of a client connection end
// when the client closes it. It has no deadline and no values.
//
// A caller that waits in a system call cannot also wait for Done. Begin and Finish report the end
// to it without a goroutine, a lock or an allocation.
type Cancel struct {
	done  chan struct{}
	ended atomic.Bool
	// inCall is the function of the caller between Begin and Finish, nil for none.
	inCall atomic.Pointer[func()]

	mu    sync.Mutex
	funcs map[*func()]struct{} // see AfterFunc; guarded by mu
}

// NewCancel returns a Cancel that has not ended.
func NewCancel() *Cancel { return &Cancel{done: make(chan struct{})} }

// End ends the context. Only the first call has an effect.
func (c *Cancel) End() {
	if !c.ended.CompareAndSwap(false, true) {
		return
	}
	if f := c.inCall.Swap(nil); f != nil {
		(*f)()
	}
	close(c.done)
	c.mu.Lock()
	funcs := c.funcs
	c.funcs = nil
	c.mu.Unlock()
	for f := range funcs {
		(*f)()
	}
}

// Begin makes the Cancel call *f when the context ends, at once if it has ended. At most one caller
// at a time may be between Begin and Finish. *f must not block.
func (c *Cancel) Begin(f *func()) {
	c.inCall.Store(f)
	// Either End finds f, or this code finds the end.
	if c.ended.Load() && c.inCall.CompareAndSwap(f, nil) {
		(*f)()
	}
}

// Finish ends the effect of Begin. When it has returned, *f does not run.
func (c *Cancel) Finish(f *func()) {
	if !c.inCall.CompareAndSwap(f, nil) {
		<-c.done // End closes it when *f has returned
	}
}

// AfterFunc makes the Cancel call f when the context ends. If it has ended, a new goroutine calls f
// at once. The context package uses AfterFunc instead of a goroutine, and holds a lock during the
// call that f takes. stop reports whether it prevented the call of f.
func (c *Cancel) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	if c.ended.Load() {
		c.mu.Unlock()
		go f()
		return func() bool { return false }
	}
	if c.funcs == nil {
		c.funcs = make(map[*func()]struct{})
	}
	c.funcs[&f] = struct{}{}
	c.mu.Unlock()
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, found := c.funcs[&f]
		delete(c.funcs, &f)
		return found
	}
}

// Done implements context.Context.
func (c *Cancel) Done() <-chan struct{} { return c.done }

// Err implements context.Context. It returns an error at the latest when *f of Begin runs.
func (c *Cancel) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// Deadline implements context.Context.
func (*Cancel) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Value implements context.Context.
func (*Cancel) Value(any) any { return nil }
