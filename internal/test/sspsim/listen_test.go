package sspsim

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func dialErr(addr string, timeout time.Duration) error {
	c, err := net.DialTimeout("tcp", addr, timeout)
	if err == nil {
		c.Close()
	}
	return err
}

func TestRefuseClosesThePortAndOpensItAgain(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		s := start(t, Options{Addr: addr, Behaviour: withFaults(Faults{Refuse: true})})
		if err := dialErr(s.Addr(), patience); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial: %v, want connection refused from the start", err)
		}
		s.mustSet(t, Behaviour{})
		c := dial(t, s)
		c.wantOpen()
		for range 3 {
			s.mustSet(t, withFaults(Faults{Refuse: true, BlackHole: true}))
			if err := dialErr(s.Addr(), patience); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("dial: %v, want connection refused", err)
			}
			c.wantOpen() // open connections stay usable
			// The SSP keeps the port: no other socket can listen on it.
			if ln, err := net.Listen("tcp", s.Addr()); err == nil {
				ln.Close()
				t.Fatalf("the port of a refusing SSP was free")
			}
			s.mustSet(t, Behaviour{})
			dial(t, s).wantOpen()
		}
		testsupport.Equal(t, s.Counters().Connections, 4, "%d connections accepted")
	}
}

// The side that closes first keeps the connection in TIME-WAIT for a minute.
func TestAPortIsFreeAgainAfterItsConnectionsHaveEnded(t *testing.T) {
	s := startWith(t, Behaviour{})
	c := dial(t, s)
	c.wantOpen()
	addr := s.Addr()
	s.CloseConnections()
	testsupport.NoError(t, s.Close())
	again, err := Start(Options{Addr: addr})
	testsupport.MustTrue(t, err == nil, "the port cannot be opened again: %v", err)
	testsupport.NoError(t, again.Close())
}

func TestBlackHoleLetsNoDialFinish(t *testing.T) {
	s := startWith(t, Behaviour{})
	c := dial(t, s)
	c.wantOpen()
	s.mustSet(t, withFaults(Faults{BlackHole: true}))
	for range 3 {
		var timeout net.Error
		if err := dialErr(s.Addr(), 50*time.Millisecond); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("dial: %v, want a timeout", err)
		}
	}
	c.wantOpen()
	// The black hole ends while a dial waits. The kernel sends the SYN again, and the dial is
	// refused or succeeds.
	s.mustSet(t, withFaults(Faults{Refuse: true}))
	if err := dialErr(s.Addr(), patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial: %v, want connection refused", err)
	}
	s.mustSet(t, Behaviour{})
	dial(t, s).wantOpen()
	testsupport.Equal(t, s.Counters().Connections, 2, "%d connections accepted")
}

func TestStartNamesEveryBadOption(t *testing.T) {
	_, err := Start(Options{Protocol: "spdy", Record: -1, Control: "0.0.0.0:0",
		Behaviour: Behaviour{Faults: Faults{Reset: Share(2)}}})
	var invalid *InvalidError
	testsupport.MustTrue(t, errors.As(err, &invalid) && len(invalid.Mistakes) == 4, "got %v", err)
	for _, want := range []string{`Protocol: "spdy"`, "Record: -1", "Control: ", "Behaviour.faults.reset.share: 2"} {
		testsupport.True(t, strings.Contains(err.Error(), want), "%q is not in %v", want, err)
	}
	if _, err := Start(Options{RequireClientCert: true}); err == nil || !strings.Contains(err.Error(), "needs TLS") {
		t.Errorf("client certificates without TLS: %v", err)
	}
	s := start(t, Options{})
	for _, o := range []Options{{Addr: s.Addr()}, {Control: s.Addr()}, {Addr: "127.0.0.1:port"}} {
		if other, err := Start(o); err == nil {
			other.Close()
			t.Errorf("started with Addr %q, Control %q", o.Addr, o.Control)
		}
	}
}

func TestCloseConnectionsCutsOpenOnesAndTakesNewOnes(t *testing.T) {
	s := startWith(t, withFaults(Faults{Stall: Every(2)}))
	idle, busy := dial(t, s), dial(t, s)
	idle.wantOpen()
	busy.get("x")
	s.await(t, "request in flight", func(c Counters) bool { return c.InFlight == 1 })
	s.CloseConnections()
	idle.wantEnd()
	if text, _ := busy.rest(); text != "" {
		t.Errorf("got %q", text)
	}
	s.await(t, "the end of both", func(c Counters) bool { return c.OpenConnections == 0 && c.InFlight == 0 })
	dial(t, s).wantOpen()
}

func TestCloseEndsConnectionsInEveryState(t *testing.T) {
	// goleak, in TestMain, finds goroutines that do not end.
	states := map[string]Behaviour{
		"idle": {}, "hang": withFaults(Faults{Hang: Always}), "stall": withFaults(Faults{Stall: Always}),
		"drip":       withFaults(Faults{Drip: Drip{Chance: Always, Pause: Duration(time.Minute)}}),
		"large body": withFaults(Faults{OversizedBody: Oversized{Chance: Always, Bytes: 16 << 20}}), // the client does not read it
		"latency":    {Latency: Constant(time.Duration(maxLatency))},
	}
	for _, protocol := range []Protocol{HTTP1, H2C, TLSHTTP1, TLSHTTP2} {
		for name, b := range states {
			if (protocol == TLSHTTP1 || protocol == TLSHTTP2) && name != "idle" {
				continue // no connection gets as far as its behaviour
			}
			s := start(t, Options{Protocol: protocol, Behaviour: b})
			c := dial(t, s) // with TLS: the handshake does not end
			if protocol == HTTP1 {
				c.get("x")
			} else if protocol == H2C && name != "hang" {
				h, _ := newH2Client(c)
				h.get(1)
			}
			switch {
			case name == "hang" || protocol == TLSHTTP1 || protocol == TLSHTTP2:
				s.await(t, name, func(c Counters) bool { return c.Connections == 1 })
			case name == "idle":
				s.await(t, name, func(c Counters) bool { return c.Responded == 1 })
			default:
				s.await(t, name, func(c Counters) bool { return c.InFlight == 1 })
			}
			done := make(chan struct{})
			go func() { s.Close(); close(done) }()
			select {
			case <-done:
			case <-time.After(patience):
				t.Fatalf("%s, %s: Close hangs", protocol, name)
			}
			if n := s.Counters(); n.OpenConnections != 0 || n.InFlight != 0 {
				t.Errorf("%s, %s: after Close %+v", protocol, name, n)
			}
			if err := errors.Join(s.Close(), s.Set(b)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s, %s: Close and Set after Close: %v", protocol, name, err)
			}
		}
	}
}
