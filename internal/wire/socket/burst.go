package socket

import (
	"runtime"
	"sync"
)

// burst gathers the writes of several goroutines, and makes the system calls together. It is used towards SSPs;
// http1.Conn.Read explains why not towards clients.
//
// A peer on the same machine sleeps until bytes arrive. Sends with pauses between them wake it each
// time. The wake-up of an idle core is the most expensive part of a send on loopback. So
// WriteInBurst lets all ready goroutines run first, and then sends for all of them. If no other
// goroutine is ready, it sends at once.
//
// With 64 clients on one core, that takes 0.94 of the CPU of plain writes with a yield after each write (interleaved
// runs).
type burst struct {
	mu    sync.Mutex // guards the fields below, and the fields of the writes in queue
	queue []*burstWrite
	spare []*burstWrite // memory of an earlier queue
}

// bursts holds about one burst for each core: a sync.Pool returns the value that was last put back on the same core.
var bursts = sync.Pool{New: func() any { return new(burst) }}

// burstWrite is the state of a call of WriteInBurst. A Conn has at most one such call at a time.
type burstWrite struct {
	sendFunc func(fd uintptr) // calls socket.sendNow, stored once to save an allocation
	socket   *direct
	p        []byte
	state    sendState
	n        int
	err      error
	// wake wakes the goroutine that called WriteInBurst, if it is asleep while another goroutine sends its bytes.
	wake   chan struct{}
	asleep bool
}

type sendState uint8

const (
	idle   sendState = iota // there is nothing to send
	queued                  // p waits to be sent
	taken                   // a goroutine is sending p
)

// WriteInBurst writes all of p, like Write. It sends together with other goroutines that call
// WriteInBurst on other connections at the same time. At most one goroutine at a time may write to
// c.
func (c *Conn) WriteInBurst(p []byte) (int, error) {
	if c.raw == nil || len(p) == 0 {
		return c.Write(p)
	}
	s := &c.burstWrite
	if s.socket == nil {
		s.socket, s.sendFunc, s.wake = &c.out, func(fd uintptr) { c.out.sendNow(fd) }, make(chan struct{}, 1)
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
			s.n, s.err = s.socket.writeNow(s.p, s.sendFunc)
		}
		b.mu.Lock()
		b.sentLocked(batch)
	}
	for s.state == taken {
		s.asleep = true
		b.mu.Unlock()
		<-s.wake
		b.mu.Lock()
	}
	n, err := s.n, s.err
	b.mu.Unlock()
	s.p, s.err = nil, nil
	if err != nil || n == len(p) {
		return n, err
	}
	m, err := c.Write(p[n:]) // the socket is full: only this goroutine waits for it
	return n + m, err
}

// takeLocked removes all writes from the queue, so that the caller sends their bytes. The caller never blocks: if a socket
// is full, the goroutine that called WriteInBurst on that socket sends the rest.
func (b *burst) takeLocked() []*burstWrite {
	batch := b.queue
	b.queue, b.spare = b.spare[:0], nil
	for _, s := range batch {
		s.state = taken
	}
	return batch
}

// sentLocked ends the writes of batch, and wakes their goroutines.
func (b *burst) sentLocked(batch []*burstWrite) {
	for i, s := range batch {
		s.state = idle
		if s.asleep {
			s.asleep = false
			s.wake <- struct{}{}
		}
		batch[i] = nil
	}
	b.spare = batch[:0]
}

// writeNow writes as many bytes of p as the socket takes without waiting. send is burstWrite.sendFunc.
func (d *direct) writeNow(p []byte, send func(fd uintptr)) (int, error) {
	d.buf, d.n, d.errno = p, 0, 0
	return d.sent(d.raw.Control(send))
}
