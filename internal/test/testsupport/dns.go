package testsupport

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// DNS is a name server that gives the same addresses for all names.
type DNS struct {
	Addr netip.AddrPort // over UDP

	mu      sync.Mutex // guards the fields below
	results map[string]string
	queries map[string]int
}

// Results of DNS.Set that are no addresses.
const (
	DNSSilent = "silent"   // there is no response
	DNSFails  = "SERVFAIL" // the response is an error
)

// StartDNS starts a server at addr for the length of the test. err says why it cannot listen there.
func StartDNS(t testing.TB, addr string) (*DNS, error) {
	t.Helper()
	s, stop, err := ServeDNS(addr)
	if err == nil {
		t.Cleanup(stop)
	}
	return s, err
}

// ServeDNS starts a server at addr, which stop ends. err says why it cannot listen there.
func ServeDNS(addr string) (s *DNS, stop func(), err error) {
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, nil, err
	}
	s = &DNS{Addr: c.LocalAddr().(*net.UDPAddr).AddrPort(), results: make(map[string]string), queries: make(map[string]int)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		query := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(query)
			if err != nil {
				return
			}
			if response := s.respond(query[:n]); response != nil {
				c.WriteTo(response, from)
			}
		}
	}()
	return s, func() {
		c.Close()
		<-ended
	}, nil
}

// Set sets the result of a network, "ip4" or "ip6": addresses with spaces between them, "" for none, or DNSSilent
// or DNSFails.
func (s *DNS) Set(network, result string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[network] = result
}

// Queries returns how many queries for addresses of a network came so far.
func (s *DNS) Queries(network string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries[network]
}

// respond returns nil for a query that gets no response.
func (s *DNS) respond(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	network := map[dnsmessage.Type]string{dnsmessage.TypeA: "ip4", dnsmessage.TypeAAAA: "ip6"}[q.Type]
	s.mu.Lock()
	result := s.results[network]
	s.queries[network]++
	s.mu.Unlock()
	m = dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: true, RecursionAvailable: true},
		Questions: m.Questions,
	}
	switch result {
	case DNSSilent:
		return nil
	case DNSFails:
		m.RCode = dnsmessage.RCodeServerFailure
	default:
		for text := range strings.FieldsSeq(result) {
			var body dnsmessage.ResourceBody = &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(text).As16()}
			if ip := netip.MustParseAddr(text); ip.Is4() {
				body = &dnsmessage.AResource{A: ip.As4()}
			}
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: body})
		}
	}
	response, err := m.Pack()
	if err != nil {
		return nil
	}
	return response
}
