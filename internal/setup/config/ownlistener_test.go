package config

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestAnEndpointThatIsTheOwnListenerWarns(t *testing.T) {
	m := machine{hostname: "Node-7", addrs: []netip.Addr{
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7"),
	}}
	for _, c := range []struct {
		listen, endpoint string
		own              bool
	}{
		{"127.0.0.1:8080", "http://127.0.0.1:8080/bid", true},
		{"127.0.0.1:8080", "http://127.0.0.1:08080/bid", true},
		{"127.0.0.1:8080", "https://127.0.0.1:8080/bid?key=k", true},
		{"127.0.0.1:8080", "http://localhost:8080/", true},
		{"127.0.0.1:8080", "http://LOCALHOST.:8080/", true},
		{"127.0.0.1:8080", "http://ads.localhost:8080/", true},
		{"127.0.0.1:8080", "http://[::ffff:127.0.0.1]:8080/", true},
		{"127.0.0.1:8080", "http://node-7:8080/", true},
		{"127.0.0.1:8080", "http://127.0.0.1:8081/", false},
		{"127.0.0.1:8080", "http://127.0.0.2:8080/", false},
		{"127.0.0.1:8080", "http://[::1]:8080/", false},
		{"127.0.0.1:8080", "http://192.0.2.7:8080/", false},
		{"127.0.0.1:8080", "http://127.0.0.1/", false},
		{"127.0.0.1:80", "http://127.0.0.1/", true},
		{"127.0.0.1:443", "https://127.0.0.1/", true},
		{"[::1]:8080", "http://[::1]:8080/", true},
		{"[::1]:8080", "http://localhost:8080/", true},
		{"[::1]:8080", "http://127.0.0.1:8080/", false},
		{"localhost:8080", "http://127.0.0.1:8080/", true},
		{"localhost:8080", "http://[::1]:8080/", true},
		{"ads.internal:8080", "http://ADS.internal.:8080/", true},
		{"ads.internal:8080", "http://other.internal:8080/", false},
		{"192.0.2.7:8080", "http://192.0.2.7:8080/", true},
		{"192.0.2.7:8080", "http://node-7:8080/", true},
		{"192.0.2.7:8080", "http://127.0.0.1:8080/", false},
		{":8080", "http://127.0.0.1:8080/", true},
		{":8080", "http://127.9.9.9:8080/", true},
		{":8080", "http://[::1]:8080/", true},
		{":8080", "http://192.0.2.7:8080/", true},
		{":8080", "http://[2001:db8::7]:8080/", true},
		{":8080", "http://node-7:8080/", true},
		{":8080", "http://localhost:8080/", true},
		{":8080", "http://192.0.2.8:8080/", false},
		{":8080", "http://rtb.example:8080/", false},
		{"[::]:8080", "http://192.0.2.7:8080/", true},
		{"[::]:8080", "http://[2001:db8::7]:8080/", true},
		{"0.0.0.0:8080", "http://192.0.2.7:8080/", true},
		{"0.0.0.0:8080", "http://[2001:db8::7]:8080/", false},
		{"0.0.0.0:8080", "http://[::1]:8080/", false},
		{"127.0.0.1:0", "http://127.0.0.1:1/", false},
		{"unix:/run/adbuffer.sock", "http://127.0.0.1:8080/", false},
	} {
		text := "server: {listen: \"" + c.listen + "\"}\nssps: [{name: a, endpoints: [\"" + c.endpoint + "\"]}]\nroutes: [{name: r, match: {path: /}, ssps: [a]}]\n"
		var got []string
		for _, w := range warnings(mustParse(t, text), m, everyKey) {
			if strings.Contains(w.Text, "adbuffer itself") {
				got = append(got, w.String())
			}
		}
		own := len(got) == 1
		testsupport.True(t, own == c.own, "listen %s, endpoint %s: %q, want a warning: %v", c.listen, c.endpoint, got, c.own)
		if c.own && len(got) == 1 && (!strings.Contains(got[0], "ssps[0].endpoints[0]") || !strings.Contains(got[0], "server.listen ("+c.listen+")") || strings.Contains(got[0], "key=k")) {
			t.Errorf("the warning is %q", got[0])
		}
	}
}

func TestAnEndpointThatIsTheAdminListenerWarns(t *testing.T) {
	cfg := mustParse(t, "ssps: [{name: a, endpoints: [\"http://127.0.0.1:9090/\"]}]\nroutes: [{name: r, match: {path: /}, ssps: [a]}]\n")
	wantWarnings(t, warnings(cfg, machine{}, everyKey), "ssps[0].endpoints[0]: leads to this adbuffer itself, at admin.listen (127.0.0.1:9090): the admin listener serves no ads")
}

func TestThisMachineKnowsItsAddresses(t *testing.T) {
	m := thisMachine()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testsupport.NoError(t, err)
	defer l.Close()
	addr := l.Addr().(*net.TCPAddr).AddrPort().Addr()
	testsupport.True(t, m.isLocal(addr) && len(m.addrs) != 0 && m.hostname != "", "%+v does not know %v", m, addr)
}

// With reuse_port both listeners could open one address, and some requests for ads would reach the admin listener.
func TestListenersOnTheSameAddressAreRefused(t *testing.T) {
	for _, c := range []struct {
		server, admin string
		refused       bool
	}{
		{"127.0.0.1:8080", "127.0.0.1:8080", true},
		{"127.0.0.1:08080", "127.0.0.1:8080", true},
		{"localhost:8080", "127.0.0.1:8080", true},
		{"LOCALHOST:8080", "[::1]:8080", true},
		{"ads.example:8080", "ADS.example.:8080", true},
		{":8080", "127.0.0.1:8080", true},
		{"0.0.0.0:8080", "[::1]:8080", true}, // Go listens on IPv6 too
		{"127.0.0.1:8080", "[::]:8080", true},
		{"127.0.0.1:8080", "127.0.0.2:8080", false},
		{"127.0.0.1:8080", "[::1]:8080", false},
		{"127.0.0.1:8080", "ads.example:8080", false},
		{":8080", ":8081", false},
		{":0", ":0", false},
		{"unix:/run/8080", "127.0.0.1:8080", false},
	} {
		_, _, err := Parse([]byte(twoSSPs), Env{"ADBUFFER_SERVER_LISTEN": c.server, "ADBUFFER_ADMIN_LISTEN": c.admin})
		refused := err != nil
		testsupport.True(t, refused == c.refused, "%s and %s: %v", c.server, c.admin, err)
	}
}
