package dial

import (
	"errors"
	"testing"
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
)

// A handshake that got no CPU within its timeout is not the SSP's failure. While CPU is idle, dials
// wait for no turn.
func TestAHandshakeThatGotNoTurnIsNotTheSSPsFailure(t *testing.T) {
	p := listen(t, waitForEnd)
	o := p.https(t, newAuthority(), "ssp.test")
	o.CPU, o.Party = cpushare.New(0.01, time.Millisecond), cpushare.PartyNamed("ssp")
	d := newDialer(t, o)
	d.SetTimeouts(5*time.Second, 20*time.Millisecond)
	dialError(t, d, p.addr("ssp.test"), exchange.TLSFailed, "no TLS handshake within 20ms", "timeouts.tls_handshake")

	// Requests wait for CPU, and what the share had saved is used up: the next turn comes in seconds.
	o.CPU.Observe(time.Second, 100*time.Millisecond)
	turn, err := o.CPU.Acquire(cpushare.Scrape, 1, time.Now().Add(time.Hour))
	testsupport.NoError(t, err)
	time.Sleep(100 * time.Millisecond)
	turn.Release()
	_, err = d.Dial(t.Context(), false, p.addr("ssp.test"))
	checkError(t, err, exchange.TLSFailed, "too little CPU", "server.background_cpu")
	testsupport.True(t, errors.Is(err, lag.ErrTooMuch), "the pool would count %v as a failure of the SSP", err)
}
