package capacity

// HTTP2Conns returns the least number of HTTP/2 connections that offer the
// given places, with streams requests at once on each: places/streams, rounded
// up. Places that are not above 0 need none. Fewer than one stream a
// connection counts as one.
//
// streams is the smaller of the own limit and the peer's
// SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113, section 5.1.2).
func HTTP2Conns(places, streams int) int {
	return divideUp(places, max(streams, 1))
}

// HTTP2GrownConns returns how many connections carry the given places when no
// cap stops a pool that opens another one for a request that finds half of the
// streams in use on each: places/⌈streams/2⌉, rounded up. A cap below it fills
// connections more than half; a cap below [HTTP2Conns] makes requests wait.
// Arguments as for HTTP2Conns.
func HTTP2GrownConns(places, streams int) int {
	streams = max(streams, 1)
	return divideUp(places, streams-streams/2)
}

// divideUp returns n/by rounded up, and 0 for n below 1.
func divideUp(n, by int) int {
	if n < 1 {
		return 0
	}
	return (n-1)/by + 1
}
