package exchange

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Cancel is a context.Context that its owner ends: for example, the requests of a client connection end when the
// client closes the connection. It has no deadline and no values.
//
// A goroutine that waits in a system call cannot also wait for Done. With Begin and Finish it is interrupted at the
// end of the context, without another goroutine, a lock or an allocation.
type Cancel struct {
	done  chan struct{}
	ended atomic.Bool
	// inCall is the function of the last Begin; nil if no caller is between Begin and Finish.
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

// Begin makes the Cancel call *f when the context ends, or at once if it has ended. At most one goroutine at a time
// may be between Begin and Finish. *f must not block.
func (c *Cancel) Begin(f *func()) {
	c.inCall.Store(f)
	// Either End finds f, or this code finds the end.
	if c.ended.Load() && c.inCall.CompareAndSwap(f, nil) {
		(*f)()
	}
}

// Finish ends the effect of Begin. After it has returned, *f is neither running nor called.
func (c *Cancel) Finish(f *func()) {
	if !c.inCall.CompareAndSwap(f, nil) {
		<-c.done // End closes it when *f has returned
	}
}

// AfterFunc makes the Cancel call f when the context ends. If it has ended, a new goroutine calls f at once. The
// context package uses AfterFunc in place of a goroutine. It calls AfterFunc with a lock held that f acquires too, so
// AfterFunc itself must not call f. stop reports whether it prevented the call of f.
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

// Err implements context.Context. When *f of Begin runs, it already returns an error.
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
