package load

import (
	"time"
)

// conn is one connection of an event loop. It is in one of these states:
//
//	closed      no socket; the loop opens one when it is needed
//	connecting  waits to be writable
//	open        carries requests
type conn struct {
	key    int32 // index in loop.conns
	fd     int
	state  connState
	listed bool // in loop.free
	dirty  bool // in loop.dirty: out has bytes to be written
	stuck  bool // the socket's buffer is full; an event will tell

	out    []byte // unsent bytes
	in     []byte // the start of a response, or of a chunk's line, not yet whole
	parser Parser
	uses   uint64 // isResponse read on this socket
	opened time.Duration
	retry  time.Duration // closed: not to be opened before
	fails  int           // connects in a row

	flights ring // without a response, the oldest first
}

type connState uint8

const (
	closed connState = iota
	connecting
	open
)

// flight is a request that has been sent, or waits for its connection to open.
type flight struct {
	due    time.Duration // when it should have been sent; latency counts from here
	sent   time.Duration // when it was
	number uint64
	phase  int32
	class  int32
}

// ring is a queue of flights of fixed capacity.
type ring struct {
	items []flight
	head  int
	count int
}

func (r *ring) full() bool { return r.count == len(r.items) }

func (r *ring) push(f flight) {
	i := r.head + r.count
	if i >= len(r.items) {
		i -= len(r.items)
	}
	r.items[i] = f
	r.count++
}

func (r *ring) first() *flight { return &r.items[r.head] }

func (r *ring) pop() flight {
	f := r.items[r.head]
	if r.head++; r.head == len(r.items) {
		r.head = 0
	}
	r.count--
	return f
}

// arrivals is a queue that grows up to maxBacklog.
type arrivals struct {
	items []arrival
	head  int
}

type arrival struct {
	due   time.Duration
	phase int32
}

// maxBacklog bounds the requests that wait for a connection.
const maxBacklog = 1 << 20

func (a *arrivals) len() int { return len(a.items) - a.head }

func (a *arrivals) push(x arrival) bool {
	if a.len() >= maxBacklog {
		return false
	}
	if a.head > 4096 && a.head > len(a.items)/2 {
		a.items = a.items[:copy(a.items, a.items[a.head:])]
		a.head = 0
	}
	a.items = append(a.items, x)
	return true
}

func (a *arrivals) first() arrival { return a.items[a.head] }

func (a *arrivals) pop() arrival {
	x := a.items[a.head]
	if a.head++; a.head == len(a.items) {
		a.items, a.head = a.items[:0], 0
	}
	return x
}
