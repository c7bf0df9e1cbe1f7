package lag

import (
	"os"
	"runtime"
	"sync"
	"syscall"
)

// Queue stands for what a request waits behind for CPU: the goroutines that are ready, and after them the sockets
// that are ready, in the kernel's order.
//
// Go asks its poller for some of the ready sockets when no goroutine is ready, or after 10 ms. So with 1,000 busy
// clients, requests wait for 160 ms in the kernel, while a goroutine that only yields waits for 3 ms. Pass waits for
// both.
type Queue struct {
	r, w     *os.File // a pipe; nil if no file descriptor was free
	raw      syscall.RawConn
	stepFunc func(fd uintptr) (done bool) // the method value step, stored to save an allocation a call

	mu      sync.Mutex // held during Pass; guards the fields below
	written bool
	byte    [1]byte
}

// NewQueue returns a queue. It holds two file descriptors until Close.
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
	q.r, q.w, q.stepFunc = r, w, q.step
	return q
}

// Pass waits until all goroutines and sockets that are ready now have had their turn. Concurrent calls run one after
// the other: the meter's previous goroutine may still be in Pass when its next goroutine calls it.
func (q *Queue) Pass() {
	if q.raw != nil {
		q.mu.Lock()
		q.written = false
		q.raw.Read(q.stepFunc) //nolint:errcheck // the error says only that the pipe is closed
		q.mu.Unlock()
	}
	runtime.Gosched() // waits for the sockets that Go's poller returned together with the pipe
}

// step is called by RawConn.Read, first at once, then each time that the poller says that the pipe is readable. The
// first call makes the pipe readable but asks to wait, so that the poller reports the pipe after all sockets that
// were readable before.
func (q *Queue) step(fd uintptr) (done bool) {
	if !q.written {
		q.written = true
		_, err := q.w.Write(q.byte[:])
		return err != nil
	}
	_, err := syscall.Read(int(fd), q.byte[:])
	return err != syscall.EAGAIN
}

// Close closes the file descriptors. From then on Pass returns at once.
func (q *Queue) Close() {
	if q.raw != nil {
		q.r.Close()
		q.w.Close()
	}
}
