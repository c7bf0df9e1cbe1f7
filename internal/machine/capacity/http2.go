package capacity

// HTTP2Conns returns the smallest number of HTTP/2 connections that offer the given places, if each connection
// carries at most streams requests at once: places/streams, rounded up. Places that are not above 0 give 0. A value
// of streams below 1 counts as 1.
//
// streams is the smaller of the pool's limit and the SSP's SETTINGS_MAX_CONCURRENT_STREAMS (RFC
// 9113, section 5.1.2).
func HTTP2Conns(places, streams int) int {
	return divideUp(places, max(streams, 1))
}

// HTTP2GrownConns returns how many connections a pool without a limit opens for the given places: places/⌈streams/2⌉,
// rounded up. Such a pool opens another connection for a request that finds half of the streams in use on each. With
// a lower limit on connections, they are more than half full; with a limit below [HTTP2Conns], requests wait. The
// arguments are those of HTTP2Conns.
func HTTP2GrownConns(places, streams int) int {
	streams = max(streams, 1)
	return divideUp(places, streams-streams/2)
}

// divideUp returns n/divisor, rounded up, and 0 for n below 1.
func divideUp(n, divisor int) int {
	if n < 1 {
		return 0
	}
	return (n-1)/divisor + 1
}
