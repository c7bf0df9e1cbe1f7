package proxy

// Serving returns how many connections fasthttp's server holds buffers for:
// those that are neither parked nor closed.
func (p *Proxy) Serving() int { return int(p.server.GetOpenConnectionsCount()) }
