package dial

import (
	"crypto/tls"
	"runtime"
	"testing"
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// starve makes every goroutine wait for its turn: n goroutines compute for 10 ms each on the only core.
func starve(t *testing.T, n int) {
	t.Helper()
	cores := runtime.GOMAXPROCS(1)
	done := make(chan struct{})
	for range n {
		go func() {
			for !isClosed(done) {
				for end := time.Now().Add(10 * time.Millisecond); time.Now().Before(end); {
				}
				runtime.Gosched()
			}
		}()
	}
	t.Cleanup(func() {
		close(done)
		runtime.GOMAXPROCS(cores)
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// metered gives the dialer a meter that is in use.
func metered(t *testing.T, o Options) *Dialer {
	t.Helper()
	o.Lag = lag.New(runtime.Gosched)
	o.Lag.Start()
	t.Cleanup(o.Lag.Stop)
	return newDialer(t, o)
}

// A dial waits for its turn four times as long as its timeouts, since this process has too little
// CPU. The SSP responds at once. Though the timers of the timeouts run first, the SSP must not be blamed.
func TestADialOutlastsItsTimeoutsWhileOtherGoroutinesRun(t *testing.T) {
	testsupport.Long(t)
	ca := newAuthority()
	p := listenTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.valid(t, "ssp.test")}})
	for scheme, o := range map[string]Options{"http": p.options(t, "http", "ssp.test"), "https": p.https(t, ca, "ssp.test")} {
		t.Run(scheme, func(t *testing.T) {
			o.ConnectTimeout, o.TLSTimeout = 50*time.Millisecond, 50*time.Millisecond
			d := metered(t, o)
			starve(t, 20)
			for range 2 {
				r, err := d.Dial(t.Context(), true, p.addr("ssp.test"))
				testsupport.NoError(t, err)
				r.Conn.Close()
			}
		})
	}
}

// Though the process has too little CPU, a dial to a black hole ends. It ends later than its timeout.
func TestADialToABlackHoleEndsDespiteTheLag(t *testing.T) {
	testsupport.Long(t)
	silent := listen(t, waitForEnd).addr("ssp.test")
	for _, c := range []struct {
		scheme, setting string
		to              exchange.Address
		want            exchange.Outcome
	}{
		{"http", "timeouts.connect", tcpBlackHole(t), exchange.ConnectFailed},
		{"https", "timeouts.tls_handshake", silent, exchange.TLSFailed},
	} {
		o := (&peer{port: 1}).options(t, c.scheme, "ssp.test")
		o.ConnectTimeout, o.TLSTimeout = 20*time.Millisecond, 20*time.Millisecond
		d := metered(t, o)
		t.Run(c.scheme, func(t *testing.T) {
			starve(t, 5)
			began := time.Now()
			dialError(t, d, c.to, c.want, c.setting)
			testsupport.AtLeast(t, time.Since(began), 50*time.Millisecond, "the dial ended after %v, although this process hardly ran")
		})
	}
}

// An address is not slower than another if only this process was slow.
func TestAnAddressIsNotSlowBecauseOfTheLag(t *testing.T) {
	testsupport.Long(t)
	first, _ := counted(t, "127.0.0.1")
	second, others := counted(t, "::1")
	o := (&peer{port: 1}).options(t, "http", "ssp.test")
	d := metered(t, o)
	d.delay = 30 * time.Millisecond
	starve(t, 20)
	for range 2 {
		r := raceTo(t, d, first, second)
		testsupport.MustTrue(t, r.At == 0 && r.Lost[1] == nil, "At is %d, Lost %v", r.At, r.Lost)
	}
	testsupport.Equal(t, others.Load(), 0, "%d connections to the second address")
}
