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
