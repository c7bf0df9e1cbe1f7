package dial

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestAShorterHandshakeTimeoutHoldsForTheNextDial(t *testing.T) {
	p := listen(t, waitForEnd) // sends nothing
	ca := newAuthority()
	d := newDialer(t, p.https(t, ca, "ssp.test"))
	d.SetTimeouts(5*time.Second, 7*time.Millisecond)
	dialError(t, d, p.addr("ssp.test"), exchange.TLSFailed, "no TLS handshake within 7ms", "timeouts.tls_handshake")
}

func TestAShorterConnectTimeoutHoldsForTheNextLookup(t *testing.T) {
	never := func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ends, err := exchange.ParseEndpoints([]string{"http://ssp.test/bid"})
	testsupport.NoError(t, err)
	d := newDialer(t, Options{Endpoints: ends, Mode: HTTP1, ConnectTimeout: time.Hour, Lookup: never})
	d.SetTimeouts(7*time.Millisecond, 0)
	_, err = d.Addresses(t.Context())
	checkError(t, err, exchange.ConnectFailed, "within 7ms", "timeouts.connect")
}
