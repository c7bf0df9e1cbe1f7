package socket

import (
	"runtime"
	"sync"
)

// burst sends the bytes of several goroutines together. adbuffer uses it towards SSPs;
// http1.Conn.Read says why not towards clients.
//
// A peer on the same machine sleeps until bytes arrive. Sends with pauses between them wake it each
// time. The wake-up of an idle core is the most expensive part of a send on loopback. So
// WriteInBurst lets all ready goroutines run first, and then sends for all of them. If no other
// goroutine is ready, it sends at once.
//
// With 64 clients on one core it takes 0.94 of the CPU of plain writes with a yield after each
// (interleaved runs).
type burst struct {
	mu    sync.Mutex // guards the fields below, and the sendings in queue
	queue []*sending
	spare []*sending // memory of an earlier queue
}

// bursts has about one burst per core: a sync.Pool returns the value that was last put on the same
// core.
var bursts = sync.Pool{New: func() any { return new(burst) }}

// sending is the current WriteInBurst of a Conn. A Conn has at most one.
type sending struct {
	now    func(fd uintptr) // calls socket.sendNow, stored once to save an allocation
	socket *direct
	p      []byte
	state  sendState
	n      int
	err    error
	// done wakes a goroutine for which another core has sent.
	done    chan struct{}
	waiting bool
}

type sendState uint8

const (
	idle   sendState = iota // nothing to send, or sent
	queued                  // waits to be sent
	taken                   // is being sent
)

// WriteInBurst writes all of p, like Write. It sends together with other goroutines that call
// WriteInBurst on other connections at the same time. At most one goroutine at a time may write to
// c.
func (c *Conn) WriteInBurst(p []byte) (int, error) {
	if c.raw == nil || len(p) == 0 {
		return c.Write(p)
	}
	s := &c.sending
	if s.socket == nil {
		s.socket, s.now, s.done = &c.out, func(fd uintptr) { c.out.sendNow(fd) }, make(chan struct{}, 1)
	}
	b := bursts.Get().(*burst)
	b.mu.Lock()
	s.p, s.state = p, queued
	b.queue = append(b.queue, s)
	b.mu.Unlock()
	bursts.Put(b)
	runtime.Gosched()

	b.mu.Lock()
	if s.state == queued {
		batch := b.takeLocked()
		b.mu.Unlock()
		for _, s := range batch {
			s.n, s.err = s.socket.writeNow(s.p, s.now)
		}
		b.mu.Lock()
		b.sentLocked(batch)
	}
	for s.state == taken {
		s.waiting = true
		b.mu.Unlock()
		<-s.done
		b.mu.Lock()
	}
	n, err := s.n, s.err
	b.mu.Unlock()
	s.p, s.err = nil, nil
	if err != nil || n == len(p) {
		return n, err
	}
	m, err := c.Write(p[n:]) // the socket is full: this goroutine waits alone
	return n + m, err
}

// takeLocked takes all queued bytes, to send them. That never blocks: bytes that a full socket does
// not take stay with their own goroutine.
func (b *burst) takeLocked() []*sending {
	batch := b.queue
	b.queue, b.spare = b.spare[:0], nil
	for _, s := range batch {
		s.state = taken
	}
	return batch
}

// sentLocked wakes the goroutines for which this one has sent.
func (b *burst) sentLocked(batch []*sending) {
	for i, s := range batch {
		s.state = idle
		if s.waiting {
			s.waiting = false
			s.done <- struct{}{}
		}
		batch[i] = nil
	}
	b.spare = batch[:0]
}

// writeNow writes as many bytes of p as the socket takes without waiting; send is sending.now.
func (d *direct) writeNow(p []byte, send func(fd uintptr)) (int, error) {
	d.buf, d.n, d.errno = p, 0, 0
	return d.sent(d.raw.Control(send))
}
