package lag

import (
	"os"
	"runtime"
	"sync"
	"syscall"
)

// Queue is what a request waits in for CPU: the goroutines that are ready, and behind them the sockets
// that are ready, in the order of the kernel.
//
// Go asks its poller for a part of these sockets when no goroutine is ready, or after 10 ms. So with
// 1,000 busy clients, requests wait for 160 ms, while a goroutine that yields waits for 3 ms.
type Queue struct {
	r, w *os.File // a pipe; nil if the process may open no more files
	raw  syscall.RawConn
	next func(fd uintptr) (done bool) // step; stored once to save an allocation

	mu      sync.Mutex // held by Pass; guards the fields below
	written bool
	byte    [1]byte
}

// NewQueue returns a queue. Close releases its two files.
func NewQueue() *Queue {
	q := new(Queue)
	r, w, err := os.Pipe()
	if err != nil {
		return q
	}
	q.raw, err = r.SyscallConn()
	if err != nil {
		r.Close()
		w.Close()
		return q
	}
	q.r, q.w, q.next = r, w, q.step
	return q
}

// Pass waits until all goroutines and sockets that are ready now have had their turn. Calls wait
// for each other: a goroutine that ends may be in one while the next one begins.
func (q *Queue) Pass() {
	if q.raw != nil {
		q.mu.Lock()
		q.written = false
		q.raw.Read(q.next) //nolint:errcheck // the pipe was closed
		q.mu.Unlock()
	}
	runtime.Gosched() // behind the sockets that Go took together with the pipe
}

// step makes the pipe readable when it is first called, and waits for the poller nevertheless. So the
// pipe stands behind all sockets that were readable before it.
func (q *Queue) step(fd uintptr) (done bool) {
	if !q.written {
		q.written = true
		_, err := q.w.Write(q.byte[:])
		return err != nil
	}
	_, err := syscall.Read(int(fd), q.byte[:])
	return err != syscall.EAGAIN
}

// Close releases the files. From then on Pass returns at once.
func (q *Queue) Close() {
	if q.raw != nil {
		q.r.Close()
		q.w.Close()
	}
}
