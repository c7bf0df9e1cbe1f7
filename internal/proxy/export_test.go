package proxy

// Serving returns how many connections use buffers of fasthttp's server. Parked and closed
// connections use none.
func (p *Proxy) Serving() int { return int(p.server.GetOpenConnectionsCount()) }

// Unfinished returns how many connections wait for the rest of a handshake or head.
func (p *Proxy) Unfinished() int {
	p.clients.mu.Lock()
	defer p.clients.mu.Unlock()
	return p.clients.unfinished.all.Len()
}

// Reading returns how many of them wait for their clients.
func (p *Proxy) Reading() (n int) {
	p.clients.mu.Lock()
	defer p.clients.mu.Unlock()
	for e := p.clients.unfinished.all.Front(); e != nil; e = e.Next() {
		if one := e.Value.(*unfinishedConn); one.parked != nil || one.reading.Load() && !one.continues() {
			n++
		}
	}
	return n
}
