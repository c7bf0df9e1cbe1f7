package proxy

import (
	"cmp"
	"errors"
	"fmt"

	"adbuffer/internal/http1server"
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

// headRefusal returns the refusal for an error of http1server or of Scan.
func (g *configVersion) headRefusal(err error) *refusal {
	e, isField := errors.AsType[*httpheader.Error](err)
	switch {
	case errors.Is(err, http1server.ErrHeadTooLarge):
		return g.headTooLarge()
	case errors.Is(err, http1server.ErrNotReadInTime):
		return g.notReadInTime()
	case isField && e.TooLarge():
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

// unreadRefusal returns the refusal for a connection or a request that was not read completely.
func (p *Proxy) unreadRefusal(g *configVersion, err error) *refusal {
	o := &g.opts
	unread, isUnread := errors.AsType[http1server.UnreadError](err)
	switch {
	case errors.Is(err, http1server.ErrTooManyConnections):
		return &refusal{
			outcome: upstream.Overloaded,
			detail:  fmt.Sprintf("%d of %d client connections are open; see %s", p.server.Open(), o.MaxConnections, o.connectionsFrom()),
		}
	case errors.Is(err, http1server.ErrMadeRoom):
		return &refusal{
			outcome: upstream.BadRequest, status: statusRequestTimeout, close: true,
			detail: fmt.Sprintf("%d client connections were open, and the head of this request had been arriving for the longest time; see %s", p.server.Open(), o.connectionsFrom()),
		}
	case errors.Is(err, http1server.ErrTooManyStreams):
		return &refusal{
			outcome: upstream.Overloaded,
			detail:  fmt.Sprintf("%d of %d streams of the client's connection are open; see server.max_streams_per_conn", o.MaxStreams, o.MaxStreams),
		}
	case isUnread:
		return &refusal{
			outcome: upstream.Overloaded,
			detail:  fmt.Sprintf("the client has not read %d bytes of responses on its connection, which may hold %d: a sixteenth of server.max_buffered_bytes, at least 1 MiB", unread, o.maxUnread()),
		}
	}
	return malformed(err.Error())
}

func (o *Options) connectionsFrom() string {
	return cmp.Or(o.MaxConnectionsFrom, "server.max_connections")
}
