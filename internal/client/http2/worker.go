package http2

import (
	"runtime"
	"time"
)

// worker is a goroutine that serves requests. It ends when its connection is idle or closed. If more
// than keptWorkers wait for a request, those beyond keptWorkers end after surplusFor.
type worker struct {
	wake chan *Stream // capacity 1; closed to end the worker
}

// A goroutine that has served a request holds 8 to 16 KiB. A client that opens many streams once must
// not keep them all.
const (
	keptWorkers = 8
	surplusFor  = 100 * time.Millisecond
)

// dispatchLocked gives each request that has arrived completely to a waiting worker, or to a new one if none waits. A
// request that is gone, because a frame of the same read has reset it or the connection has closed, is not served.
func (c *Conn) dispatchLocked() {
	for i, s := range c.ready {
		c.ready[i] = nil
		if s.gone.Load() {
			c.unholdLocked(s)
			continue
		}
		s.serving = true // and the worker holds it
		c.running++
		n := len(c.workers)
		if n == 0 {
			w := &worker{make(chan *Stream, 1)}
			go c.work(w)
			w.wake <- s
			continue
		}
		w := c.workers[n-1]
		c.workers = c.workers[:n-1]
		w.wake <- s // it is empty: the worker waits
	}
	c.ready = c.ready[:0]
}

// work is a worker's goroutine.
func (c *Conn) work(w *worker) {
	for s := range w.wake {
		response := s.req.Serve()
		if c.respond(s, response) {
			// The yield lets ready goroutines add their frames first, so that responses that end together leave in
			// one write. A single response is not delayed.
			runtime.Gosched()
			c.write()
		}
		if !c.rest(w) {
			return
		}
	}
}

// respond sends the response of Serve, if the client still wants it. It reports whether the caller
// must call write.
func (c *Conn) respond(s *Stream, r *Response) (mustWrite bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.serving = false
	c.running--
	if s.gone.Load() {
		c.ghosts--
		c.drainedLocked()
	} else {
		c.servedLocked(s, r)
	}
	c.unholdLocked(s)
	return c.startWritingLocked()
}

// rest makes w wait for the next request. It returns false if the connection is closed.
func (c *Conn) rest(w *worker) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.workers = append(c.workers, w)
	if len(c.workers) > keptWorkers && !c.trimming {
		c.trimming = true
		time.AfterFunc(surplusFor, c.endSurplusWorkers)
	}
	return true
}

// endSurplusWorkers ends the workers that wait beyond keptWorkers.
func (c *Conn) endSurplusWorkers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trimming = false
	for len(c.workers) > keptWorkers {
		last := len(c.workers) - 1
		close(c.workers[last].wake)
		c.workers[last] = nil
		c.workers = c.workers[:last]
	}
}

// stopWorkersLocked ends the workers that wait.
func (c *Conn) stopWorkersLocked() {
	for _, w := range c.workers {
		close(w.wake)
	}
	c.workers = nil
}
