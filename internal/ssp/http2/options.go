package http2

import (
	"cmp"
	"time"
)

// Options are the limits of one SSP's connections, none below zero. New takes a copy.
type Options struct {
	// MaxStreams is how many exchanges a connection carries at once, unless the peer allows fewer.
	// Zero means 100. A higher value needs fewer connections, but one lost connection fails more
	// exchanges. A connection has 32 to 64 bytes for each. `pool.max_streams_per_conn`.
	MaxStreams int
	// MaxResponseBytes bounds a response's body. Zero allows no body. `max_response_bytes`.
	MaxResponseBytes int
	// MaxResponseHeaderBytes bounds the header list of a response, and that of its trailers. A
	// list's size is its names, values and 32 bytes for each field, as in RFC 9113, section 6.5.2.
	// `max_response_header_bytes`.
	MaxResponseHeaderBytes int
	// WriteTimeout is how long one write may be stuck before the connection is closed. Zero means 5
	// s. It does not delay callers: they return at their deadlines.
	WriteTimeout time.Duration
	// PingTimeout is how long the peer may send nothing after the PING that follows abandoned
	// exchanges, before the connection is closed. Zero means 5 s.
	PingTimeout time.Duration
}

func (o Options) withDefaults() Options {
	o.MaxStreams = cmp.Or(o.MaxStreams, 100)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 5*time.Second)
	o.PingTimeout = cmp.Or(o.PingTimeout, 5*time.Second)
	return o
}
