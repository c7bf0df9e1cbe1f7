package pool

import "adbuffer/internal/wire/exchange"

// size says how many connections and places the pool may have: by the settings, by the size that the pool chose
// for itself, and by the protocol and places that the next connection will likely have. autosizer chooses the size,
// outside the lock, from machine.sizerInput; machine.resize stores it here. Guarded by Pool.mu.
type size struct {
	opts  *Options // the pool's
	conns *connections

	chosen     int  // the size that the pool chose, in connections; 0 = max_conns
	closeAbove int  // the size to which the pool went back, above which it closes connections; 0 = max_conns
	peak       peak // since the janitor's last round
}

// maxConns returns how many connections may be open: pool.max_conns, or fewer if the pool sizes itself.
func (z *size) maxConns() int {
	if z.chosen > 0 {
		return min(z.chosen, z.opts.MaxConns)
	}
	return z.opts.MaxConns
}

// limit returns how many connections of the next connection's kind may be open.
func (z *size) limit() int { return z.limitOf(z.maxConns()) }

// limitOf returns how many connections of the next connection's protocol may be open if at most limit connections
// of all protocols may be open.
func (z *size) limitOf(limit int) int {
	if z.next() == exchange.HTTP2 {
		return min(z.opts.MaxHTTP2Conns, limit)
	}
	return limit
}

// sharedLimit returns how many multiplexed connections may take requests.
func (z *size) sharedLimit() int {
	if z.opts.Protocol == exchange.HTTP1Pipelined {
		return z.maxConns()
	}
	return min(z.opts.MaxHTTP2Conns, z.maxConns())
}

// surplus returns how many serving connections exceed max_conns, or the size to which the pool went back after it had
// grown. If the pool made itself smaller for another reason, the connections above its size stay until they end.
func (z *size) surplus() int {
	limit := z.opts.MaxConns
	if z.closeAbove > 0 {
		limit = min(limit, z.closeAbove)
	}
	return z.conns.serving() - limit
}

// mayOpen returns how many more connections may be opened. It does not subtract the dials under way.
func (z *size) mayOpen() int { return z.room(z.maxConns()) }

// room returns how many more connections may be opened if at most limit may be open.
func (z *size) room(limit int) int {
	n := limit - len(z.conns.members)
	if z.next() == exchange.HTTP2 {
		n = min(n, z.limitOf(limit)-len(z.conns.shared.list))
	}
	return max(0, n)
}

// next returns the likely protocol of the next connection: the last connection's. If the SSP uses
// HTTP/2 only on some connections, all later ones are HTTP/1 once max_http2_conns connections use
// HTTP/2.
func (z *size) next() exchange.Protocol {
	if z.conns.forecast.protocol == exchange.HTTP2 && z.conns.serving()-z.conns.single > len(z.conns.shared.list) && z.conns.shared.staying() >= z.sharedLimit() {
		return exchange.HTTP1
	}
	return z.conns.forecast.protocol
}

// perConn returns how many places the next connection will likely have: as many as the last one of
// its protocol, or fewer on probation. Before the first one it is the configured limit, or 1 while the
// protocol is unknown.
func (z *size) perConn() int {
	n := z.opts.PlacesPerConn(z.next())
	if z.conns.forecast.places > 0 {
		n = min(n, z.conns.forecast.places)
	}
	return z.conns.probation.limit(n)
}

// load returns the places in use, and the places that the pool could offer at the same time: the places of
// open connections, plus perConn for each connection that max_conns still allows. A draining connection
// counts only its places in use.
func (z *size) load() load {
	l := load{inUse: z.conns.inUse, possible: z.conns.places}
	if n := z.room(z.opts.MaxConns); n > 0 {
		l.possible += n * z.perConn()
	}
	return l
}

// notePeak updates the peak of this second.
func (z *size) notePeak() {
	if now := z.load().peak(); now.saturation > z.peak.saturation || now.inUse > z.peak.inUse { // each request reads its cache line: write it only if needed
		z.peak = z.peak.max(now)
	}
}

// mayIsolate reports whether another connection may carry an isolated request.
func (z *size) mayIsolate() bool { return z.conns.isolated < z.opts.isolatedLimit() }

// placeSettingsFor names the settings that limit the places for w.
func (z *size) placeSettingsFor(w *waiter) string {
	if w.isolated {
		return isolatedSettings
	}
	return z.placeSettings()
}

// placeSettings names the settings that limit the number of places.
func (z *size) placeSettings() string {
	if z.maxConns() < z.limitOf(z.opts.MaxConns) {
		return "pool.auto" // the pool has chosen a smaller size than the settings allow
	}
	switch z.next() {
	case exchange.HTTP2:
		return "pool.max_http2_conns, pool.max_streams_per_conn"
	case exchange.HTTP1Pipelined:
		return "pool.max_conns, pool.pipeline_depth"
	}
	return "pool.max_conns"
}

// load says how many places of a pool are in use.
type load struct {
	inUse    int // places in use
	possible int // places that the pool could offer at the same time
}

// saturation returns the share of the possible places that is in use, 0 if none is possible.
func (l load) saturation() float64 {
	if l.possible <= 0 {
		return 0
	}
	return float64(l.inUse) / float64(l.possible)
}

func (l load) peak() peak { return peak{l.saturation(), l.inUse} }

// peak holds the highest saturation of some time, and the highest number of places in use, which may have been at
// another moment: the number of possible places changes with the settings and the protocol.
type peak struct {
	saturation float64
	inUse      int
}

func (p peak) max(q peak) peak {
	return peak{max(p.saturation, q.saturation), max(p.inUse, q.inUse)}
}
