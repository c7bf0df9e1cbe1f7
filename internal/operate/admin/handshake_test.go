package admin

import (
	"crypto/tls"
	"runtime"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/cpushare"
)

// TLS handshakes at the admin listener wait for a turn, a dropped connection waits no more, and a request
// holds none.
func TestHandshakesTakeTurns(t *testing.T) {
	share := cpushare.New(0.25, time.Hour)
	places := max(1, runtime.GOMAXPROCS(0)/2)
	occupy := func() (release func()) {
		turns := make([]cpushare.Turn, places)
		for i := range turns {
			var err error
			turns[i], err = share.Acquire(cpushare.Decode, 1, time.Now().Add(testsupport.Patience))
			testsupport.NoError(t, err)
		}
		return func() {
			for i := range turns {
				turns[i].Release()
			}
		}
	}
	c := newConsole(t, loopback, func(o *Options) {
		o.CPU = share
		o.TLS = &tls.Config{Certificates: []tls.Certificate{testsupport.Certificate("localhost")}}
	})
	addr := c.listening()
	shake := func(d time.Duration) (*tls.Conn, error) {
		conn := tls.Client(dialTo(t, addr, ""), &tls.Config{InsecureSkipVerify: true})
		conn.SetDeadline(time.Now().Add(d))
		return conn, conn.Handshake()
	}
	release := occupy()
	for range 2*maxConnections + 1 { // the last ones drop the first ones
		_, err := shake(time.Millisecond)
		testsupport.True(t, err != nil, "a handshake without a turn succeeded")
	}
	testsupport.Eventually(t, "dropped connections wait for no turn", func() bool {
		waiting := testsupport.Goroutines("cpushare.(*Share).acquire")
		return waiting > 0 && waiting <= maxConnections
	})
	release()
	conn, err := shake(testsupport.Patience)
	testsupport.NoError(t, err)
	conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	wantOK(t, "/healthz", conn)
	occupy()()
}
