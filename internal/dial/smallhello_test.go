package dial

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/handshake"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// maxHello is the longest ClientHello that the middlebox forwards.
const maxHello = 1400

// middlebox is a proxy between the dialer and the SSP.
type middlebox struct {
	*peer
	large, small atomic.Int32 // connections, by their ClientHello
	passes       func() bool  // whether the current large hello passes; nil: none does
}

// startMiddlebox forwards connections with a short ClientHello to behind, and calls lose on all
// others. If behind is nil, it calls lose on all connections.
func startMiddlebox(t *testing.T, behind *peer, lose func(*net.TCPConn)) *middlebox {
	t.Helper()
	m := new(middlebox)
	ready := make(chan struct{})
	p := listen(t, func(c *net.TCPConn) {
		<-ready
		record := make([]byte, 5)
		if _, err := io.ReadFull(c, record); err != nil {
			return
		}
		hello := make([]byte, binary.BigEndian.Uint16(record[3:]))
		if _, err := io.ReadFull(c, hello); err != nil {
			return
		}
		if len(record)+len(hello) > maxHello {
			m.large.Add(1)
			if m.passes == nil || !m.passes() {
				lose(c)
				return
			}
		} else {
			m.small.Add(1)
		}
		if behind == nil {
			lose(c)
			return
		}
		there, err := net.Dial("tcp", behind.addr("").AddrPort.String())
		if err != nil {
			return
		}
		defer there.Close()
		there.Write(append(record, hello...))
		go func() {
			io.Copy(there, c)
			there.Close()
		}()
		io.Copy(c, there)
	})
	m.peer = p
	close(ready)
	return m
}

func (m *middlebox) want(t *testing.T, large, small int32) {
	t.Helper()
	l, s := m.large.Load(), m.small.Load()
	testsupport.True(t, l == large && s == small, "%d large and %d small hellos arrived, want %d and %d", l, s, large, small)
}

func reset(c *net.TCPConn) { c.SetLinger(0) } // closing sends a reset

func TestAHelloThatAMiddleboxLosesIsTriedOnceMoreWithoutHybridGroups(t *testing.T) {
	testsupport.Long(t)
	ca := newAuthority()
	for name, lose := range map[string]func(*net.TCPConn){"reset": reset, "dropped": waitForEnd} {
		ssp := listenTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.valid(t, "ssp.test")}})
		m := startMiddlebox(t, ssp, lose)
		o := m.https(t, ca, "ssp.test")
		var warned atomic.Int32
		o.Warn = func(error) { warned.Add(1) }
		if name == "dropped" {
			o.TLSTimeout = 2 * time.Second
		}
		d := newDialer(t, o)
		for range 3 {
			r := m.dial(t, d, false)
			state := <-ssp.state
			testsupport.True(t, state.CurveID == tls.X25519 && state.Version == tls.VersionTLS13, "%s: %s over %s", name, state.CurveID, tls.VersionName(state.Version))
			readOne(t, r)
		}
		m.want(t, 1, 3)
		if s := &d.stats; s.helloHelped.Load() != 1 || s.helloFailed.Load() != 0 || handshakesOf(d).failed != 1 || handshakesOf(d).full != 3 || warned.Load() != 1 {
			t.Errorf("%s: %+v, %d warnings", name, s, warned.Load())
		}
		// After smallHelloFor, the middlebox may have been replaced.
		d.hellos.forget()
		m.dial(t, d, false)
		m.want(t, 2, 4)
		testsupport.Equal(t, d.hellos.sizeFor(m.addr("").AddrPort), needsSmall, "%[2]s: learned %[1]d", name)
	}
}

// A small hello that gets a response, but no handshake, shows nothing about the middlebox. Its error
// says more than that of the lost hello.
func TestASmallHelloThatOnlyGetsAnAlertIsNoSuccess(t *testing.T) {
	alerting := listen(t, func(c *net.TCPConn) {
		c.Write([]byte{21, 3, 3, 0, 2, 2, 40})
		waitForEnd(c)
	})
	m := startMiddlebox(t, alerting, reset)
	o := m.https(t, nil, "ssp.test")
	o.Warn = func(err error) { t.Errorf("a warning: %v", err) }
	d := newDialer(t, o)
	err := dialError(t, d, m.addr("ssp.test"), upstream.TLSFailed)
	testsupport.True(t, strings.Contains(err.Error(), "handshake failure"), "the error is %v", err)
	m.want(t, 1, 1)
	testsupport.ErrorIs(t, dialError(t, d, m.addr("ssp.test"), upstream.TLSFailed), syscall.ECONNRESET, "the second error is %v")
	m.want(t, 2, 1) // no second attempt for a minute
	s := &d.stats
	testsupport.True(t, s.helloHelped.Load() == 0 && s.helloFailed.Load() == 1, "%+v", s)
}

// An address that has completed a handshake with a large hello keeps getting large ones, although
// one was lost.
func TestALargeHelloThatIsLostByChanceIsTriedAgainAndNotUnlearned(t *testing.T) {
	ca := newAuthority()
	ssp := listenTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.valid(t, "ssp.test")}})
	var lost atomic.Int32
	m := startMiddlebox(t, ssp, func(c *net.TCPConn) { lost.Add(1); reset(c) })
	m.passes = func() bool { return m.large.Load() != 2 }
	o := m.https(t, ca, "ssp.test")
	o.Warn = func(err error) { t.Errorf("a warning: %v", err) }
	d := newDialer(t, o)
	for i, group := range []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.X25519MLKEM768} {
		r := m.dial(t, d, false)
		testsupport.Equal(t, (<-ssp.state).CurveID, group, "connection %[2]d uses %[1]v", i)
		readOne(t, r)
	}
	m.want(t, 3, 1)
	s := &d.stats
	testsupport.True(t, lost.Load() == 1 && s.helloHelped.Load() == 1, "%d lost, %+v", lost.Load(), s)
}

// forget ends the time of all entries.
func (h *hellos) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for a, s := range h.at {
		s.until = time.Now()
		h.at[a] = s
	}
}

// An SSP that resets all connections gets only one second attempt a minute.
func TestASmallHelloThatIsOfNoUseIsNotRepeated(t *testing.T) {
	m := startMiddlebox(t, nil, reset)
	d := newDialer(t, m.https(t, nil, "ssp.test"))
	for range 3 {
		dialError(t, d, m.addr("ssp.test"), upstream.TLSFailed)
	}
	m.want(t, 3, 1)
	s := &d.stats
	testsupport.True(t, s.helloHelped.Load() == 0 && s.helloFailed.Load() == 1 && handshakesOf(d).failed == 4, "%+v", s)
	d.hellos.forget()
	dialError(t, d, m.addr("ssp.test"), upstream.TLSFailed)
	m.want(t, 4, 2)
}

// No other error leads to a second attempt.
func TestOtherFailedHandshakesAreNotTriedAgain(t *testing.T) {
	ca := newAuthority()
	for name, row := range map[string]struct {
		lose   func(*net.TCPConn)
		policy handshake.Policy
	}{
		"closed":              {lose: func(*net.TCPConn) {}},
		"an alert":            {lose: func(c *net.TCPConn) { c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) }},
		"silent after a byte": {lose: func(c *net.TCPConn) { c.Write([]byte{22}); waitForEnd(c) }},
		"no TLS":              {lose: func(c *net.TCPConn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); waitForEnd(c) }},
		"hybrid groups alone": {lose: reset, policy: handshake.NewPolicy("1.3", []string{"X25519MLKEM768"})},
	} {
		m := startMiddlebox(t, nil, row.lose)
		o := m.https(t, ca, "ssp.test")
		o.TLS.Policy = row.policy
		if name == "silent after a byte" {
			o.TLSTimeout = time.Second
		}
		d := newDialer(t, o)
		dialError(t, d, m.addr("ssp.test"), upstream.TLSFailed)
		m.want(t, 1, 0)
		s := &d.stats
		testsupport.True(t, s.helloHelped.Load()+s.helloFailed.Load() == 0, "%s: %+v", name, s)
	}
	// Without hybrid groups, a second attempt would equal the first.
	m := startMiddlebox(t, nil, reset)
	o := m.https(t, ca, "ssp.test")
	o.TLS.Policy = handshake.NewPolicy("1.2", []string{"x25519"})
	dialError(t, newDialer(t, o), m.addr("ssp.test"), upstream.TLSFailed)
	m.want(t, 0, 1)
}

// After a small hello, an untrusted certificate is still untrusted.
func TestASmallHelloChecksTheCertificate(t *testing.T) {
	ca := newAuthority()
	ssp := listenTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.valid(t, "other.test")}})
	m := startMiddlebox(t, ssp, reset)
	d := newDialer(t, m.https(t, ca, "ssp.test"))
	dialError(t, d, m.addr("ssp.test"), upstream.TLSFailed, "its certificate is for another name")
	m.want(t, 1, 1)
}

// One address more than are remembered makes the dialer forget another one.
func TestRememberedHelloSizesAreBounded(t *testing.T) {
	var h hellos
	for i := range uint16(3 * maxAddrs) {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), i+1)
		h.learn(addr, needsSmall)
		testsupport.MustEqual(t, h.sizeFor(addr), needsSmall, "the new address: %d")
		testsupport.MustEqual(t, len(h.at), min(int(i)+1, maxAddrs), "%d addresses are remembered")
	}
}
