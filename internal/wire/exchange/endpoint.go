package exchange

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"adbuffer/internal/wire/syntax"
)

// Endpoint is a host and port of an SSP.
type Endpoint struct {
	Host      string // a name in lower case, or an IP address without brackets: for DNS and TLS. It may end with a dot
	Port      uint16
	Name      string // host:port without a final dot of host, the name in metrics, logs and commands
	Authority string // host[:port] in requests: Name without the scheme's default port
}

// Address is an IP address and port of an endpoint.
type Address struct {
	Endpoint
	AddrPort netip.AddrPort
}

// String returns "host (ip:port)".
func (a Address) String() string { return a.Host + " (" + a.AddrPort.String() + ")" }

// Endpoints holds all endpoints of one SSP. Only their hosts and ports differ.
type Endpoints struct {
	Scheme string // "http" or "https"
	Path   string // percent-encoded as configured; never empty
	Query  string // without "?", "" = none
	All    []Endpoint
}

// EndpointError says which rule the URL of an endpoint violates. It does not hold the URL, since a query may hold a
// secret.
type EndpointError struct {
	At     int    // index of the endpoint
	Rule   string // "must …"
	SameAs int    // index of the endpoint with the same host and port; -1 if another rule is violated
}

func (e *EndpointError) Error() string { return fmt.Sprintf("endpoint %d %s", e.At+1, e.Rule) }

// ParseEndpoints reads an SSP's endpoint URLs. It joins an *EndpointError for each URL that
// violates a rule, and also returns all valid URLs.
func ParseEndpoints(urls []string) (Endpoints, error) {
	if len(urls) == 0 {
		return Endpoints{}, errors.New("an SSP needs at least one endpoint")
	}
	var (
		all  Endpoints
		at   = make(map[string]int) // by Endpoint.Name
		errs []error
	)
	for i, s := range urls {
		u, e, rule := parseEndpoint(s)
		same := -1
		switch {
		case rule != "":
		case len(all.All) == 0:
			all.Scheme, all.Path, all.Query = u.Scheme, pathOf(u), u.RawQuery
		case u.Scheme != all.Scheme || pathOf(u) != all.Path || u.RawQuery != all.Query:
			rule = "must have the scheme, path and query of the endpoints before it; configure it as a separate SSP"
		default:
			if j, twice := at[e.Name]; twice {
				rule, same = fmt.Sprintf("must differ from endpoint %d", j+1), j
			}
		}
		if rule != "" {
			errs = append(errs, &EndpointError{At: i, Rule: rule, SameAs: same})
			continue
		}
		at[e.Name] = i
		all.All = append(all.All, e)
	}
	return all, errors.Join(errs...)
}

func pathOf(u *url.URL) string {
	if path := u.EscapedPath(); path != "" {
		return path
	}
	return "/"
}

// parseEndpoint returns the URL and its host and port, or the rule that s violates.
func parseEndpoint(s string) (u *url.URL, e Endpoint, rule string) {
	const example = `must be an http or https URL, for example "https://ssp.example/bid"`
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, e, "must hold neither spaces nor bytes beyond ASCII; percent-encode them"
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, e, example
	}
	switch {
	case u.User != nil:
		return nil, e, "must not hold a user or password"
	case strings.Contains(s, "#"):
		return nil, e, "must not hold a fragment (#)"
	case !syntax.IsHost(u.Hostname()):
		return nil, e, example
	}
	e.Host, e.Port = strings.ToLower(u.Hostname()), 80
	if u.Scheme == "https" {
		e.Port = 443
	}
	standard := e.Port
	if strings.HasSuffix(u.Host, ":") || u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || n == 0 {
			return nil, e, "must have a port from 1 to 65535, or none"
		}
		e.Port = uint16(n)
	}
	if ip, err := netip.ParseAddr(e.Host); err == nil {
		switch kind := Undialable(ip); {
		case ip.IsUnspecified():
			return nil, e, "must name a host to connect to; this address means to listen at all addresses"
		case kind != "":
			return nil, e, "must not be " + kind + " address, which is never dialled"
		}
	}
	// A final dot of the host keeps the resolver from trying its search domains. It is not part of the Host field.
	e.Name = net.JoinHostPort(strings.TrimSuffix(e.Host, "."), strconv.Itoa(int(e.Port)))
	e.Authority = e.Name
	if e.Port == standard {
		e.Authority = strings.TrimSuffix(e.Name, ":"+strconv.Itoa(int(standard)))
	}
	return u, e, ""
}

// Undialable returns a description of ip ("a link-local") if no SSP can have this address, and ""
// for all other addresses. A DNS server must not turn adbuffer into a client of its machine's
// metadata service (169.254.169.254, or fe80:: on the link). Loopback and private ranges are
// allowed: sidecars and SSPs in the cluster use them.
func Undialable(ip netip.Addr) string {
	ip = ip.Unmap()
	switch {
	case !ip.IsValid():
		return "an invalid"
	case ip.IsUnspecified():
		return "an unspecified"
	case ip.IsLinkLocalUnicast():
		return "a link-local"
	case ip.IsMulticast():
		return "a multicast"
	case ip == broadcast:
		return "a broadcast"
	case nat64.Contains(ip): // a translator would connect to the IPv4 address that is embedded
		b := ip.As16()
		return Undialable(netip.AddrFrom4([4]byte(b[12:])))
	}
	return ""
}

var (
	broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	nat64     = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052, section 2.1
)
