package proxy

// Serving returns for how many connections fasthttp's server holds buffers: those that are neither
// parked nor closed.
func (p *Proxy) Serving() int { return int(p.server.GetOpenConnectionsCount()) }
