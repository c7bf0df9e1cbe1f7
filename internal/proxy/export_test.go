package proxy

import "adbuffer/internal/http1server"

// Counts counts the client connections.
func (p *Proxy) Counts() http1server.Counts { return p.server.Counts() }
