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
	uses   uint64 // responses read on this socket
	opened time.Duration
	retry  time.Duration // closed: not to be opened before
	fails  int           // connects in a row

	flights queue[flight] // without a response, the oldest first; at most Depth
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

// arrival is a request that is due.
type arrival struct {
	due   time.Duration
	phase int32
}

// maxBacklog bounds the requests that wait for a connection.
const maxBacklog = 1 << 20
