package proxy

// Serving returns how many connections use buffers of fasthttp's server. Parked and closed
// connections use none.
func (p *Proxy) Serving() int { return int(p.server.GetOpenConnectionsCount()) }
