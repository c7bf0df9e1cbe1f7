package proxy_test

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// A client must not keep all others away with max_connections idle connections.
func TestConnectionsThatAreIdleForLongestMakeRoomForOthers(t *testing.T) {
	testsupport.Long(t)
	for name, kind := range parkedKinds {
		t.Run(name, func(t *testing.T) {
			m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
				kind.change(o, rt)
				o.MaxConnections = 3
			}, bids("a", "{}"))
			var all []net.Conn
			for range 3 {
				all = append(all, m.connectMany(1, kind.connect)...)
				m.awaitParked()
			}
			longest := []int{0, 1}
			if name != "HTTP/2" { // whose kind.ask is a PING, which is no request
				kind.ask(t, all[0])
				m.awaitParked()
				longest = []int{1, 2}
			}
			for _, longest := range longest {
				all = append(all, m.connectMany(1, kind.connect)...)
				all[longest].SetReadDeadline(time.Now().Add(testsupport.Patience))
				_, err := io.Copy(io.Discard, all[longest])
				testsupport.True(t, !isTimeout(err), "connection %d was idle for longest, and is still open", longest)
				m.awaitParked()
			}
			for i, c := range all {
				if !slices.Contains(longest, i) {
					kind.ask(t, c)
				}
			}
			open, dropped := m.series(openClients, ""), m.series(clientsDropped, "idle")
			testsupport.True(t, open == 3 && dropped == 2, "%v connections are open, and %v were dropped", open, dropped)
		})
	}
}
