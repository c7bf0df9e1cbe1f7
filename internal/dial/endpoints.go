package dial

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Endpoint is a host and port of an SSP.
type Endpoint struct {
	// Host is a name in lower case or an IP address without brackets.
	Host string
	Port uint16

	ip netip.Addr // of an IP literal; else the zero Addr
}

// Name returns host:port, by which metrics, logs and operators call the endpoint.
func (e Endpoint) Name() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// Endpoints are all endpoints of one SSP. Only their hosts and ports differ.
type Endpoints struct {
	Scheme string // "http" or "https"
	Path   string // percent-encoded as configured; never empty
	Query  string // without "?", "" = none
	All    []Endpoint
}

// ParseEndpoints reads an SSP's endpoint URLs. Its errors count them from 1: a
// query may hold a secret.
func ParseEndpoints(urls []string) (Endpoints, error) {
	if len(urls) == 0 {
		return Endpoints{}, errors.New("an SSP needs at least one endpoint")
	}
	var all Endpoints
	for i, s := range urls {
		u, e, err := parseEndpoint(s)
		if err != nil {
			return Endpoints{}, fmt.Errorf("endpoint %d: %w", i+1, err)
		}
		path := u.EscapedPath()
		if path == "" {
			path = "/"
		}
		if i == 0 {
			all.Scheme, all.Path, all.Query = u.Scheme, path, u.RawQuery
		} else if u.Scheme != all.Scheme || path != all.Path || u.RawQuery != all.Query {
			return Endpoints{}, fmt.Errorf("endpoint %d: scheme, path and query must be those of the first", i+1)
		}
		for j, other := range all.All {
			if e == other {
				return Endpoints{}, fmt.Errorf("endpoint %d: the same host and port as endpoint %d", i+1, j+1)
			}
		}
		all.All = append(all.All, e)
	}
	return all, nil
}

func parseEndpoint(s string) (*url.URL, Endpoint, error) {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return nil, Endpoint{}, errors.New("bytes outside printable ASCII")
		}
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, Endpoint{}, err
	case u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.Hostname() == "":
		return nil, Endpoint{}, errors.New("not an http or https URL")
	case u.User != nil || strings.Contains(s, "#"):
		return nil, Endpoint{}, errors.New("a user or a fragment is not allowed")
	}
	e := Endpoint{Host: strings.ToLower(u.Hostname()), Port: defaultPort(u.Scheme)}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, Endpoint{}, fmt.Errorf("port %s is not within 1 to 65535", p)
		}
		e.Port = uint16(n)
	}
	if ip, err := netip.ParseAddr(e.Host); err == nil {
		if ip.Zone() != "" {
			return nil, Endpoint{}, errors.New("an address with a zone is not allowed")
		}
		if kind := refused(ip); kind != "" {
			return nil, Endpoint{}, fmt.Errorf("%s is %s address, which is never dialled", ip, kind)
		}
		e.ip = ip.Unmap()
	}
	return u, e, nil
}

func defaultPort(scheme string) uint16 {
	if scheme == "https" {
		return 443
	}
	return 80
}

// Authority returns host[:port] as it stands in the Host field of requests to
// a: without the scheme's default port, with brackets around IPv6.
func (e *Endpoints) Authority(a Addr) string {
	host := a.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := a.AddrPort.Port(); port != defaultPort(e.Scheme) {
		host += ":" + strconv.Itoa(int(port))
	}
	return host
}
