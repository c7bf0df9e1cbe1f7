package load

import (
	"time"
)

// conn is one connection of an event loop. It is in one of these states:
//
//	closed      has no socket; the loop opens one when a request needs it
//	connecting  waits to be writable
//	open        carries requests
type conn struct {
	key    int32 // its index in loop.conns
	fd     int
	state  connState
	listed bool // in loop.free
	dirty  bool // in loop.dirty: out has bytes to be written
	stuck  bool // the socket's buffer is full until the poller reports it writable

	out    []byte // unsent bytes
	in     []byte // an incomplete header or line of a chunk
	parser Parser
	uses   uint64 // responses read on this socket
	opened time.Duration
	retry  time.Duration // the earliest time to open a closed connection
	fails  int           // failed connects in a row

	flights queue[flight] // requests without a response, oldest first, at most Depth
}

type connState uint8

const (
	closed connState = iota
	connecting
	open
)

// flight is a request that was sent or that waits for its connection to open.
type flight struct {
	due    time.Duration // planned time of sending, from which latency counts
	sent   time.Duration // actual time of sending
	number uint64
	phase  int32
	class  int32
}

// arrival is a request that is due.
type arrival struct {
	due   time.Duration
	phase int32
}

// maxBacklog bounds the requests that wait for a connection.
const maxBacklog = 1 << 20
