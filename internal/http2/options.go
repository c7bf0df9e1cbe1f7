package http2

import "time"

// Options are the limits of one SSP's connections. New takes a copy.
type Options struct {
	// MaxStreams is how many exchanges a connection carries at once: this, or
	// what the peer allows if that is less. Zero and below are 100, over 16384
	// is 16384. Raising it needs fewer connections, and puts more exchanges at
	// stake when one is lost. `pool.max_streams_per_conn`.
	MaxStreams int
	// MaxResponseBytes bounds an answer's body. Zero allows none.
	// `max_response_bytes`.
	MaxResponseBytes int
	// MaxResponseHeaderBytes bounds the header list of an answer, and its
	// trailers: names and values, and 32 bytes for each field, as RFC 9113,
	// section 6.5.2, counts. `max_response_header_bytes`.
	MaxResponseHeaderBytes int
	// MaxResponseFields bounds the fields of an answer's header and trailers
	// together. Zero and below are 256. `max_response_fields`.
	MaxResponseFields int
	// WriteTimeout is for how long one write may be stuck before the connection
	// is closed. Zero is 5 s. It does not hold up callers, who leave at their
	// deadlines.
	WriteTimeout time.Duration
	// PingTimeout is how long the peer may stay silent after the PING that follows
	// abandoned exchanges, before the connection is closed. Zero is 5 s.
	PingTimeout time.Duration
}

const (
	defaultMaxStreams   = 100
	defaultMaxFields    = 256
	maxMaxStreams       = 1 << 14
	defaultWriteTimeout = 5 * time.Second
	defaultPingTimeout  = 5 * time.Second
)

func (o Options) withDefaults() Options {
	if o.MaxStreams <= 0 {
		o.MaxStreams = defaultMaxStreams
	}
	o.MaxStreams = min(o.MaxStreams, maxMaxStreams)
	o.MaxResponseBytes = max(o.MaxResponseBytes, 0)
	o.MaxResponseHeaderBytes = max(o.MaxResponseHeaderBytes, 0)
	if o.MaxResponseFields <= 0 {
		o.MaxResponseFields = defaultMaxFields
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = defaultWriteTimeout
	}
	if o.PingTimeout <= 0 {
		o.PingTimeout = defaultPingTimeout
	}
	return o
}
