package proxy

import "adbuffer/internal/machine/overload"

// LimitState is a limit of the whole service at one moment.
type LimitState struct {
	// Setting is the path of the limit's setting and, if the machine lowers the limit, the reason.
	Setting string
	// Effect says what happens at the limit.
	Effect      string
	Used, Limit int64
	Reached     uint64 // how often Effect has happened since start
}

// SingleRequests returns the number of connections since start that ended after one request, and the client of the last
// of them, as logs may show it.
func (p *Proxy) SingleRequests() (n uint64, client string) {
	c := p.Connections()
	return c.Single, p.current().shownPeer(c.SinglePeer)
}

// OverloadSetting is the setting of the limit on how long requests wait for CPU, the first that Limits returns.
const OverloadSetting = "server.overload.target"

// Limits returns the limits of the service.
func (p *Proxy) Limits() []LimitState {
	connections := p.Connections()
	uploads, uploadsMax, uploadsDropped := p.uploads.counts()
	_, _, unread := p.unread.counts()
	shed := p.current().opts.Overload
	state := shed.State()
	lag := LimitState{OverloadSetting, "requests wait for CPU longer than the limit (in ms), and some of them are refused", int64(state.LagMs), int64(state.TargetMs), 0}
	if state.DryRun {
		lag.Effect = "requests wait for CPU longer than the limit (in ms); without dry_run, some of them would be refused"
	}
	for priority := range overload.Priorities {
		refused, dry := shed.Count(priority)
		lag.Reached += refused + dry
	}
	return []LimitState{
		lag,
		{connections.From, "new connections are refused, or connections are closed that are idle or whose handshake or request head is incomplete", connections.Open, connections.Limit, connections.Refused + connections.Closed},
		{"server.max_in_flight", "requests are refused", int64(p.inFlight.Now()), int64(p.inFlight.Limit()), p.inFlight.Refused()},
		{"server.max_uploads, server.max_buffered_bytes", "requests whose body arrives slowly are refused", int64(uploads), int64(uploadsMax), uploadsDropped},
		{p.budget.From(), "requests are refused, or responses that clients do not read are cut", p.budget.Used(), p.budget.Limit(), p.budget.Refused() + unread},
	}
}
