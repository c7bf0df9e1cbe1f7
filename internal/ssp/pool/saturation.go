package pool

// load says how many places of a pool are in use.
type load struct {
	inUse    int // places in use
	possible int // places that the pool could offer at once
}

// saturation returns the share of the possible places that is in use, 0 if none is possible.
func (l load) saturation() float64 {
	if l.possible <= 0 {
		return 0
	}
	return float64(l.inUse) / float64(l.possible)
}

// load returns the places in use, and the places that the pool could offer at once: the places of
// open connections, plus perConn for each connection that max_conns still allows. A draining connection
// counts only its places in use.
func (c *connections) load() load {
	l := load{inUse: c.inUse, possible: c.places}
	if n := c.room(c.opts.MaxConns); n > 0 {
		l.possible += n * c.perConn()
	}
	return l
}

// noteSaturation updates the highest saturation of this second.
func (c *connections) noteSaturation() {
	c.highest = max(c.highest, c.load().saturation())
}
