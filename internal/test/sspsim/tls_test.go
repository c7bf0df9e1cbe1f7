package sspsim

import (
	"crypto/tls"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestTLSCertificateHoldsForLoopbackNames(t *testing.T) {
	s := start(t, Options{Protocol: TLSHTTP1, Record: 1})
	if !strings.HasPrefix(s.URL(), "https://127.0.0.1:") || !strings.HasSuffix(s.URL(), "/bid") {
		t.Errorf("URL %s", s.URL())
	}
	for _, name := range []string{"127.0.0.1", "::1", "localhost"} {
		c := dialTLS(t, s, &tls.Config{ServerName: name})
		c.wantOpen()
	}
	if q := s.Requests()[0]; q.TLS == nil || q.TLS.ServerName != "localhost" || q.TLS.NegotiatedProtocol != "" {
		t.Errorf("recorded TLS state %+v", q.TLS)
	}
	if c, err := tls.Dial("tcp", s.Addr(), &tls.Config{ServerName: "other.example", RootCAs: s.CA().Pool()}); err == nil {
		c.Close()
		t.Error("certificate holds for other.example")
	}
	if c, err := tls.Dial("tcp", s.Addr(), &tls.Config{ServerName: "localhost"}); err == nil {
		c.Close()
		t.Error("certificate is good without the CA")
	}
	// The client may close as soon as it refuses the certificate.
	s.await(t, "failed handshakes", func(c Counters) bool { return c.Handshakes == 3 && c.HandshakeErrors == 2 })
}

func TestExtraCertificatesFollowTheOwnOne(t *testing.T) {
	ca, err := NewCA()
	testsupport.NoError(t, err)
	s := start(t, Options{Protocol: TLSHTTP1, ExtraCertificates: [][]byte{ca.cert.Raw, ca.cert.Raw}})
	c, err := tls.Dial("tcp", s.Addr(), &tls.Config{RootCAs: s.CA().Pool()})
	testsupport.NoError(t, err)
	defer c.Close()
	testsupport.Equal(t, len(c.ConnectionState().PeerCertificates), 3, "%d certificates")
}

func TestALPNFollowsTheProtocol(t *testing.T) {
	for _, v := range []struct {
		protocol   Protocol
		offer      string
		negotiated string
		fails      bool
	}{
		{TLSAuto, "h2 http/1.1", "h2", false},
		{TLSAuto, "http/1.1", "http/1.1", false},
		{TLSAuto, "", "", false},
		{TLSHTTP2, "h2 http/1.1", "h2", false},
		{TLSHTTP2, "http/1.1", "", true},
		{TLSHTTP2, "", "", false},
		{TLSHTTP1, "h2 http/1.1", "http/1.1", false},
		{TLSHTTP1, "h2", "", true},
		{TLSWithout, "h2", "", false},
	} {
		s := start(t, Options{Protocol: v.protocol})
		c, err := tls.Dial("tcp", s.Addr(), &tls.Config{RootCAs: s.CA().Pool(), NextProtos: strings.Fields(v.offer)})
		testsupport.True(t, (err != nil) == v.fails, "%s offered %q: %v", v.protocol, v.offer, err)
		if err != nil {
			continue
		}
		raw := newRawClient(t, c)
		if got := c.ConnectionState().NegotiatedProtocol; got != v.negotiated {
			t.Errorf("%s offered %q: negotiated %q, want %q", v.protocol, v.offer, got, v.negotiated)
		}
		if v.negotiated != "h2" && v.protocol != TLSHTTP2 {
			raw.wantOpen()
			continue
		}
		h, _ := newH2Client(raw)
		if a := h.ask(1); a.status != "200" {
			t.Errorf("%s: %+v", v.protocol, a)
		}
	}
}

func TestHTTP1OnlyMixesTheProtocolsOfOneAddress(t *testing.T) {
	s := start(t, Options{Protocol: TLSAuto, Behaviour: Behaviour{Connections: Connections{HTTP1Only: Every(2)}}})
	cfg := &tls.Config{NextProtos: []string{"h2", "http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	for i, want := range []string{"h2", "http/1.1", "h2", "http/1.1"} {
		c := dialTLS(t, s, cfg)
		if got := c.c.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != want {
			t.Errorf("connection %d: %q, want %q", i, got, want)
		}
		if want == "h2" {
			h, _ := newH2Client(c)
			h.ask(1)
		} else {
			c.wantOpen()
		}
		c.c.Close()
	}
	// A session of one protocol can be resumed with the other.
	if n := s.Counters(); n.Handshakes != 4 || n.Resumed != 3 {
		t.Errorf("counters %+v", n)
	}
}
