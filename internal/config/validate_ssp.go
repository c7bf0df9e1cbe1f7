package config

import (
	"adbuffer/internal/syntax"
	"adbuffer/internal/upstream"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// BufferedBytesLimit is how many bytes of the SSP's responses may be held at once:
// max_buffered_bytes; if that is 0, a quarter of ofAll, the server's.
func (s *SSP) BufferedBytesLimit(ofAll int) int {
	if s.MaxBufferedBytes > 0 {
		return s.MaxBufferedBytes
	}
	return max(1, ofAll/4)
}

func checkSSP(ssp *SSP, path string, r *report) {
	scheme := checkEndpoints(ssp, join(path, "endpoints"), r)
	checkProtocol(ssp.Protocol, scheme, path, r)
	checkPool(&ssp.Pool, join(path, "pool"), r)
	ssp.TLS.check(join(path, "tls"), r)
	if name := ssp.TLS.ServerName; name != "" && !syntax.IsHost(name) {
		r.add(join(path, "tls.server_name"), name, "must be a host name without a port")
	}
	checkHeaders(&ssp.Headers, join(path, "headers"), r)
	checkSources(ssp.SourceAddresses, join(path, "source_addresses"), r)
	if e := &ssp.Ejection; e.BaseTime > e.MaxTime {
		r.add(join(path, "ejection.base_time"), formatDuration(e.BaseTime),
			"must not be above ejection.max_time, "+formatDuration(e.MaxTime), join(path, "ejection.max_time"))
	}
	if ssp.Host != "" && !validAuthority(ssp.Host) {
		r.add(join(path, "host"), ssp.Host, "must be a host name or address, with a port or without")
	}
	if limit, floor := ssp.MaxInFlight, ssp.Adaptive.Floor; ssp.Adaptive.Enabled && limit > 0 && floor > limit {
		r.add(join(path, "adaptive.floor"), floor, fmt.Sprintf("must not be above max_in_flight, %d", limit),
			join(path, "max_in_flight"))
	}
}

func checkSources(sources []netip.Addr, path string, r *report) {
	for i, a := range sources {
		switch {
		case a.Zone() != "" || a.IsMulticast() || a.IsUnspecified() || a.Is4In6():
			r.add(at(path, i), a.String(), "must be an address of this machine, without a zone; leave the list empty to let the system choose")
		case slices.Contains(sources[:i], a):
			r.add(at(path, i), a.String(), "must differ from the addresses before it")
		}
	}
}

// maxEndpoints bounds the metrics: an endpoint has about 45 series.
const maxEndpoints = 256

// checkEndpoints returns the scheme that the endpoints share; "" if they have
// errors.
func checkEndpoints(ssp *SSP, path string, r *report) (scheme string) {
	if len(ssp.Endpoints) == 0 {
		r.addMissing(path, "must have at least one URL")
		return ""
	}
	if n := len(ssp.Endpoints); n > maxEndpoints {
		r.add(path, n, fmt.Sprintf("must not be more than %d", maxEndpoints))
		return ""
	}
	urls := make([]string, len(ssp.Endpoints))
	for i, e := range ssp.Endpoints {
		urls[i] = e.URL
	}
	all, err := upstream.ParseEndpoints(urls)
	ssp.Parsed = all
	if several, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // ParseEndpoints joins them
		for _, err := range several.Unwrap() {
			e := err.(*upstream.EndpointError) //nolint:errorlint,forcetypeassert // as above
			rule := e.Rule
			if e.SameAs >= 0 {
				rule = "must differ from " + at(path, e.SameAs)
			}
			r.add(at(path, e.At), ssp.Endpoints[e.At].URL, rule)
		}
	}
	return all.Scheme
}

func checkProtocol(protocol Protocol, scheme, path string, r *report) {
	p := join(path, "protocol")
	switch {
	case protocol == ProtocolHTTP2 && scheme == "http":
		r.add(p, protocol, "needs https endpoints; h2c is HTTP/2 over cleartext")
	case protocol == ProtocolH2C && scheme == "https":
		r.add(p, protocol, "needs http endpoints; http2 is HTTP/2 over TLS")
	}
}

// checkPool checks the keys of a pool against each other.
func checkPool(pool *Pool, path string, r *report) {
	maxConns := join(path, "max_conns")
	for _, part := range []struct {
		name  string
		value int
	}{
		{"max_http2_conns", pool.MaxHTTP2Conns},
		{"max_idle", pool.MaxIdle},
		{"min_idle", pool.MinIdle},
	} {
		if part.value > pool.MaxConns {
			r.add(join(path, part.name), part.value, fmt.Sprintf("must not be above max_conns, %d", pool.MaxConns), maxConns)
		}
	}
	if pool.MinIdle > pool.MaxIdle {
		r.add(join(path, "min_idle"), pool.MinIdle, fmt.Sprintf("must not be above max_idle, %d", pool.MaxIdle),
			maxConns, join(path, "max_idle"))
	}
	backoff := &pool.DialBackoff
	if backoff.Min > backoff.Max {
		r.add(join(path, "dial_backoff.min"), formatDuration(backoff.Min),
			"must not be above dial_backoff.max, "+formatDuration(backoff.Max), join(path, "dial_backoff.max"))
	}
}

// validHostOnly is validAuthority without a port.
func validHostOnly(s string) bool {
	return validAuthority(s) && strings.LastIndexByte(s, ':') <= strings.LastIndexByte(s, ']')
}

// validAuthority reports whether s is a host with or without a port, IPv6 in
// brackets.
func validAuthority(s string) bool {
	u, err := url.Parse("http://" + s)
	return err == nil && u.Host == s && syntax.IsHost(u.Hostname()) &&
		(u.Port() == "" || validPort(u.Port())) && !strings.HasSuffix(s, ":")
}
