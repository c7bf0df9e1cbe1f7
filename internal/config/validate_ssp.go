package config

import (
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
	scheme := checkEndpoints(ssp.Endpoints, join(path, "endpoints"), r)
	checkProtocol(ssp.Protocol, scheme, path, r)
	checkPool(&ssp.Pool, join(path, "pool"), r)
	ssp.TLS.check(join(path, "tls"), r)
	if name := ssp.TLS.ServerName; name != "" && !validHost(name) {
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
func checkEndpoints(endpoints []Endpoint, path string, r *report) (scheme string) {
	if len(endpoints) == 0 {
		r.addMissing(path, "must have at least one URL")
		return ""
	}
	if len(endpoints) > maxEndpoints {
		r.add(path, len(endpoints), fmt.Sprintf("must not be more than %d", maxEndpoints))
		return ""
	}
	var first *url.URL
	seen := map[string]int{}
	for i := range endpoints {
		p, endpoint := at(path, i), endpoints[i].URL
		u, rule := parseEndpoint(endpoint)
		if rule != "" {
			r.add(p, endpoint, rule)
			continue
		}
		if first == nil {
			first = u
		}
		address := strings.ToLower(u.Hostname()) + ":" + portOf(u)
		switch j, twice := seen[address]; {
		case u.Scheme != first.Scheme || u.EscapedPath() != first.EscapedPath() || u.RawQuery != first.RawQuery:
			r.add(p, endpoint, "must have the scheme, path and query of the endpoints before it; make it an SSP of its own")
		case twice:
			r.add(p, endpoint, fmt.Sprintf("must differ from %s", at(path, j)))
		default:
			seen[address] = i
		}
	}
	if first == nil {
		return ""
	}
	return first.Scheme
}

// parseEndpoint returns the URL, or the rule that the endpoint breaks.
func parseEndpoint(endpoint string) (u *url.URL, rule string) {
	const example = `must be an http or https URL, for example "https://ssp.example/bid"`
	for i := range len(endpoint) {
		if c := endpoint[i]; c <= ' ' || c >= 0x7f {
			return nil, "must hold neither spaces nor bytes beyond ASCII; percent-encode them"
		}
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, example
	}
	switch port := u.Port(); {
	case u.User != nil:
		return nil, "must not hold a user or password"
	case strings.Contains(endpoint, "#"):
		return nil, "must not hold a fragment (#)"
	case !validHost(u.Hostname()):
		return nil, example
	case port != "" && (!validPort(port) || strings.Trim(port, "0") == "") || strings.HasSuffix(u.Host, ":"):
		return nil, "must have a port from 1 to 65535, or none"
	}
	switch ip, err := netip.ParseAddr(u.Hostname()); {
	case err != nil:
	case ip.IsLinkLocalUnicast() || ip.IsMulticast():
		return nil, "must not be a link-local or multicast address; they are never dialled"
	case ip.IsUnspecified():
		return nil, "must name where to connect to; this is the address to listen at all addresses"
	}
	return u, ""
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return strings.TrimLeft(u.Port(), "0")
	case u.Scheme == "https":
		return "443"
	}
	return "80"
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

// validHost reports whether host is an IP address without a zone, or a DNS name
// in ASCII (underscores too, as container networks use them).
func validHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == ""
	}
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isAlphanumeric(c) && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// validHostOnly is validAuthority without a port.
func validHostOnly(s string) bool {
	return validAuthority(s) && strings.LastIndexByte(s, ':') <= strings.LastIndexByte(s, ']')
}

// validAuthority reports whether s is a host with or without a port, IPv6 in
// brackets.
func validAuthority(s string) bool {
	u, err := url.Parse("http://" + s)
	return err == nil && u.Host == s && validHost(u.Hostname()) &&
		(u.Port() == "" || validPort(u.Port())) && !strings.HasSuffix(s, ":")
}
