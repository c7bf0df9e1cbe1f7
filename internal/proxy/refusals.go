package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/upstream"
)

func (p *Proxy) overloaded() *refusal {
	return &refusal{outcome: upstream.Overloaded, detail: fmt.Sprintf("%d of %d requests are in flight; see server.max_in_flight", p.inFlight.Now(), p.inFlight.Limit())}
}

func (p *Proxy) bufferFull() *refusal {
	return &refusal{outcome: upstream.Overloaded, detail: fmt.Sprintf("%d of %d bytes of bodies are held; see %s", p.budget.Used(), p.budget.Limit(), p.budget.From())}
}

func (g *configVersion) bodyTooLarge() *refusal {
	return &refusal{outcome: upstream.TooLarge, detail: fmt.Sprintf("the body is over %d bytes; see server.max_body_bytes", g.opts.MaxBodyBytes), close: true}
}

// malformed refuses a request and closes its connection.
func malformed(detail string) *refusal {
	return &refusal{outcome: upstream.BadRequest, detail: detail, close: true}
}

// headRefusal returns the refusal for an error of Scan.
func headRefusal(err error) *refusal {
	if e, ok := errors.AsType[*httpheader.Error](err); ok && e.TooLarge() {
		return &refusal{outcome: upstream.TooLarge, status: statusHeaderTooLarge, detail: err.Error(), close: true}
	}
	return malformed(err.Error())
}

func (g *configVersion) headTooLarge() *refusal {
	return &refusal{
		outcome: upstream.TooLarge, status: statusHeaderTooLarge, close: true,
		detail: fmt.Sprintf("the head is over %d bytes; see server.max_header_bytes", g.opts.MaxHeaderBytes),
	}
}

func (g *configVersion) notReadInTime() *refusal {
	return &refusal{
		outcome: upstream.BadRequest, status: statusRequestTimeout, close: true,
		detail: fmt.Sprintf("the request was not read within %v; see server.read_timeout", g.opts.ReadTimeout),
	}
}

// tooManyConnections is the error for a connection over the limit.
func (p *Proxy) tooManyConnections(g *configVersion) *refusal {
	return &refusal{
		outcome: upstream.Overloaded,
		detail:  fmt.Sprintf("%d of %d client connections are open; see %s", p.open.Load(), g.opts.MaxConnections, cmp.Or(g.opts.MaxConnectionsFrom, "server.max_connections")),
	}
}

// tooManyStreams is the error for a refused stream.
func (g *configVersion) tooManyStreams() *refusal {
	return &refusal{
		outcome: upstream.Overloaded,
		detail:  fmt.Sprintf("%d of %d streams of the client's connection are open; see server.max_streams_per_conn", g.opts.MaxStreams, g.opts.MaxStreams),
	}
}

// tooMuchUnread is the error for a stream of a client that does not read its responses.
func (g *configVersion) tooMuchUnread(bytes int) *refusal {
	return &refusal{
		outcome: upstream.Overloaded,
		detail:  fmt.Sprintf("the client has not read %d bytes of responses on its connection, which may hold %d: a sixteenth of server.max_buffered_bytes, at least 1 MiB", bytes, g.opts.maxUnread()),
	}
}

// refuseUnread counts and reports a request that was not read completely, and writes the response to
// w. The caller closes the connection.
func (c *clientConn) refuseUnread(w io.Writer, f *refusal) {
	g := c.proxy.current()
	id := g.newRequestID()
	c.proxy.endedUnread(g, c.peer, id, f)
	w.Write(g.wholeResponse(f, id)) //nolint:errcheck // the client is refused either way
}
