package header

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

var proxies = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48"),
}

// resolve returns the identity for lines that arrive from peer; "" means a Unix socket.
func resolve(t testing.TB, f *RequestFields, peer string, truncate bool, lines ...string) *Identity {
	t.Helper()
	mustScan(t, f, head(lines...))
	var addr netip.Addr
	if peer != "" {
		addr = netip.MustParseAddr(peer)
	}
	var id Identity
	id.Resolve(f, addr, peer == "" || Trusted(addr, proxies), proxies, truncate)
	return &id
}

func TestTheClientIsFoundInTheFirstField(t *testing.T) {
	var f RequestFields
	var id Identity
	mustScan(t, &f, "X-Forwarded-For: 192.0.2.1\r\nHost: ads.example\r\n\r\n")
	id.Resolve(&f, netip.Addr{}, true, nil, false)
	testsupport.Equal(t, id.Client().String(), "192.0.2.1", "the client is %s")
}

func TestClientIsFoundFromTheRightPastTrustedPeers(t *testing.T) {
	for _, tt := range []struct {
		name, peer string
		lists      []string // values of X-Forwarded-For
		client     string   // "" = unknown
		leaves     string   // as X-Forwarded-For; "" = no such field
	}{
		{"no list, stranger", "198.51.100.9", nil, "198.51.100.9", "198.51.100.9"},
		{"no list, proxy", "10.0.0.1", nil, "10.0.0.1", "10.0.0.1"},
		{"no list, loopback", "127.0.0.1", nil, "127.0.0.1", ""},
		{"no list, loopback v6", "::1", nil, "::1", ""},
		{"no list, socket", "", nil, "", ""},
		{"stranger lies", "198.51.100.9", []string{"192.0.2.1"}, "198.51.100.9", "198.51.100.9"},
		{"stranger on IPv6", "2001:db8:2::1", []string{"192.0.2.1"}, "2001:db8:2::1", "2001:db8:2::1"},
		{"socket", "", []string{"192.0.2.1"}, "192.0.2.1", "192.0.2.1"},
		{"loopback", "127.0.0.1", []string{"192.0.2.1"}, "192.0.2.1", "192.0.2.1"},
		{"proxy", "10.0.0.1", []string{"192.0.2.1"}, "192.0.2.1", "192.0.2.1, 10.0.0.1"},
		{"mapped proxy", "::ffff:10.0.0.1", []string{"192.0.2.1"}, "192.0.2.1", "192.0.2.1, 10.0.0.1"},
		{"two proxies", "10.0.0.1", []string{"192.0.2.1, 10.9.9.9"}, "192.0.2.1", "192.0.2.1, 10.9.9.9, 10.0.0.1"},
		{"the client lies", "10.0.0.1", []string{"203.0.113.66, 192.0.2.1"}, "192.0.2.1", "203.0.113.66, 192.0.2.1, 10.0.0.1"},
		{"the client claims to be a proxy", "10.0.0.1", []string{"10.6.6.6, 192.0.2.1"}, "192.0.2.1", "10.6.6.6, 192.0.2.1, 10.0.0.1"},
		{"all are proxies", "10.0.0.1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3", "10.0.0.3, 10.0.0.2, 10.0.0.1"},
		{"lines are one list", "10.0.0.1", []string{"203.0.113.66", "192.0.2.1", "10.0.0.2"}, "192.0.2.1", "203.0.113.66, 192.0.2.1, 10.0.0.2, 10.0.0.1"},
		{"loopback in the list", "127.0.0.1", []string{"192.0.2.1, 127.0.0.1"}, "192.0.2.1", "192.0.2.1"},
		{"empty elements", "10.0.0.1", []string{", 192.0.2.1,, ,", "", ","}, "192.0.2.1", "192.0.2.1, 10.0.0.1"},
		{"ports", "10.0.0.1", []string{"192.0.2.1:4711"}, "192.0.2.1", "192.0.2.1, 10.0.0.1"},
		{"IPv6", "10.0.0.1", []string{"2001:DB8:2:0::1"}, "2001:db8:2::1", "2001:db8:2::1, 10.0.0.1"},
		{"IPv6 in brackets", "10.0.0.1", []string{"[2001:db8:2::1]"}, "2001:db8:2::1", "2001:db8:2::1, 10.0.0.1"},
		{"IPv6 with a port", "10.0.0.1", []string{"\t [2001:db8:2::1]:443 "}, "2001:db8:2::1", "2001:db8:2::1, 10.0.0.1"},
		{"IPv6 proxy", "2001:db8:1::1", []string{"192.0.2.1, [2001:db8:1::2]:80"}, "192.0.2.1", "192.0.2.1, 2001:db8:1::2, 2001:db8:1::1"},
		{"mapped client", "10.0.0.1", []string{"::ffff:192.0.2.1"}, "192.0.2.1", "192.0.2.1, 10.0.0.1"},
		{"quoted", "10.0.0.1", []string{`"[2001:db8:2::1]:443"`}, "2001:db8:2::1", "2001:db8:2::1, 10.0.0.1"},
		{"junk on the right", "10.0.0.1", []string{"192.0.2.1, unknown"}, "10.0.0.1", "10.0.0.1"},
		{"junk behind a proxy", "10.0.0.1", []string{"192.0.2.1, <script>, 10.0.0.2"}, "10.0.0.2", "10.0.0.2, 10.0.0.1"},
		{"junk behind the client", "10.0.0.1", []string{"unknown", "192.0.2.1"}, "192.0.2.1", "192.0.2.1, 10.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var lines []string
			for _, list := range tt.lists {
				lines = append(lines, "X-Forwarded-For: "+list)
			}
			var f RequestFields
			id := resolve(t, &f, tt.peer, false, lines...)
			var client netip.Addr
			if tt.client != "" {
				client = netip.MustParseAddr(tt.client)
			}
			testsupport.Equal(t, id.Client(), client, "client is %v")
			var want []string
			if tt.leaves != "" {
				want = []string{"X-Forwarded-For: " + tt.leaves}
			}
			wantLines(t, linesOf(t, NewPolicy(PolicyOptions{}).AppendRequest(nil, &f, id)), want...)
		})
	}
}

func TestLongListsAreCutFromTheLeft(t *testing.T) {
	var f RequestFields
	list := strings.Repeat("10.1.1.1, ", 5000)
	id := resolve(t, &f, "10.0.0.1", false, "X-Forwarded-For: 192.0.2.1, "+list+"10.0.0.2")
	if want := netip.MustParseAddr("10.1.1.1"); id.Client() != want {
		t.Errorf("client is %v, want the farthest of %d hops, %v", id.Client(), maxHops, want)
	}
	lines := linesOf(t, NewPolicy(PolicyOptions{}).AppendRequest(nil, &f, id))
	want := "X-Forwarded-For: " + strings.Repeat("10.1.1.1, ", maxHops-2) + "10.0.0.2, 10.0.0.1"
	wantLines(t, lines, want)
}

// allIdentity is every identity field that a peer may send.
var allIdentity = []string{
	"X-Forwarded-For: 192.0.2.77", "X-Forwarded-Proto: https", "X-Forwarded-Host: app.example", "X-Forwarded-Port: 443",
	`Forwarded: for=192.0.2.77;proto=https`, "X-Forwarded: for=192.0.2.77", "X-Real-IP: 192.0.2.77", "True-Client-IP: 192.0.2.77",
	"CF-Connecting-IP: 192.0.2.77", "Fastly-Client-IP: 192.0.2.77", "Client-IP: 192.0.2.77", "X-Client-IP: 192.0.2.77",
	"X-Cluster-Client-IP: 192.0.2.77", "X-Original-Forwarded-For: 192.0.2.77, 10.0.0.2",
	"X-Device-IP: 192.0.2.88", "X-Device-User-Agent: tv", "X-Device-Referer: https://a.example", "X-Device-Requested-With: com.example",
}

func TestIdentityModes(t *testing.T) {
	list, device, agent := allIdentity[1:14], allIdentity[16:], []string{"User-Agent: phone"}
	forwardedFor := func(s string) []string { return []string{"X-Forwarded-For: " + s} }
	deviceIs := func(ip, agent string) []string {
		return []string{"X-Device-IP: " + ip, "X-Device-User-Agent: " + agent}
	}
	for _, tt := range []struct {
		name, peer string
		mode       IdentityMode
		want       []string
	}{
		{"x_forwarded_for, trusted", "10.0.0.1", XForwardedFor, slices.Concat(list, agent, forwardedFor("192.0.2.77, 10.0.0.1"))},
		{"x_device, trusted", "10.0.0.1", XDevice, slices.Concat(device, agent, deviceIs("192.0.2.88", "tv"))},
		{"both, trusted", "10.0.0.1", Both, slices.Concat(list, device, agent, forwardedFor("192.0.2.77, 10.0.0.1"), deviceIs("192.0.2.88", "tv"))},
		{"none, trusted", "10.0.0.1", None, agent},
		{"x_forwarded_for, socket", "", XForwardedFor, slices.Concat(list, agent, forwardedFor("192.0.2.77"))},
		{"x_forwarded_for, stranger", "198.51.100.9", XForwardedFor, slices.Concat(agent, forwardedFor("198.51.100.9"))},
		{"x_device, stranger", "198.51.100.9", XDevice, slices.Concat(agent, deviceIs("198.51.100.9", "phone"))},
		{"both, stranger", "198.51.100.9", Both, slices.Concat(agent, forwardedFor("198.51.100.9"), deviceIs("198.51.100.9", "phone"))},
		{"none, stranger", "198.51.100.9", None, agent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f RequestFields
			id := resolve(t, &f, tt.peer, false, slices.Concat(allIdentity, agent)...)
			wantLines(t, linesOf(t, NewPolicy(PolicyOptions{Identity: tt.mode}).AppendRequest(nil, &f, id)), tt.want...)
		})
	}
}

func TestDeviceFieldsFallBackOnTheClient(t *testing.T) {
	for _, tt := range []struct {
		name, peer string
		lines      []string
		want       []string
	}{
		{"from the list", "10.0.0.1", []string{"X-Forwarded-For: 192.0.2.1:80"}, []string{"X-Device-IP: 192.0.2.1"}},
		{"from the peer", "10.0.0.1", nil, []string{"X-Device-IP: 10.0.0.1"}},
		{"junk", "10.0.0.1", []string{"X-Device-IP: me"}, []string{"X-Device-IP: 10.0.0.1"}},
		{"loopback", "10.0.0.1", []string{"X-Device-IP: 127.0.0.1"}, []string{"X-Device-IP: 10.0.0.1"}},
		{"two", "10.0.0.1", []string{"X-Device-IP: 192.0.2.1", "X-Device-IP: 192.0.2.2"}, []string{"X-Device-IP: 10.0.0.1"}},
		{"three", "10.0.0.1", []string{"X-Device-IP: 192.0.2.1", "X-Device-IP: x", "X-Device-IP: 192.0.2.2"}, []string{"X-Device-IP: 10.0.0.1"}},
		{"tidied", "10.0.0.1", []string{"X-Device-IP: [2001:DB8:0::1]:80"}, []string{"X-Device-IP: 2001:db8::1"}},
		{"only loopback", "127.0.0.1", nil, nil},
		{"only a unix socket", "", nil, nil},
		{"agent of the first", "", []string{"X-Device-User-Agent: tv", "X-Device-User-Agent: x"}, []string{"X-Device-User-Agent: tv"}},
		{"empty agent", "", []string{"X-Device-User-Agent: "}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f RequestFields
			id := resolve(t, &f, tt.peer, false, tt.lines...)
			wantLines(t, linesOf(t, NewPolicy(PolicyOptions{Identity: XDevice}).AppendRequest(nil, &f, id)), tt.want...)
		})
	}
}

func TestTruncateShortensEveryAddressThatLeaves(t *testing.T) {
	var f RequestFields
	id := resolve(t, &f, "10.0.0.254", true,
		"X-Forwarded-For: 2001:db8:2:3456::1, 192.0.2.77:80, 10.0.0.2", "X-Forwarded-Proto: https", "X-Forwarded-By: 10.0.0.3",
		`Forwarded: for="[2001:db8:2:3456::1]:4711";by=10.0.0.3;host=a.example;proto=https, for=unknown`, `Forwarded: for=192.0.2.77, by="oh \" no"`,
		"X-Real-IP: 192.0.2.77", "True-Client-IP: whatever 192.0.2.77", "X-Original-Forwarded-For: 192.0.2.77, 10.0.0.2:80",
		"X-Device-IP: 192.0.2.88", "X-Device-Peer: 192.0.2.77", "X-Device-Mixed: 192.0.2.77, tv", "X-Device-Model: tv, big", "X-A: 192.0.2.77")
	wantLines(t, linesOf(t, NewPolicy(PolicyOptions{Identity: Both}).AppendRequest(nil, &f, id)),
		"X-Forwarded-Proto: https", "X-Forwarded-By: 10.0.0.0",
		`Forwarded: for="[2001:db8:2:3400::]";by=10.0.0.0;host=a.example;proto=https, for=unknown`,
		"X-Real-IP: 192.0.2.0", "X-Original-Forwarded-For: 192.0.2.0, 10.0.0.0",
		"X-Device-Peer: 192.0.2.0", "X-Device-Model: tv, big", "X-A: 192.0.2.77",
		"X-Forwarded-For: 2001:db8:2:3400::, 192.0.2.0, 10.0.0.0, 10.0.0.0", "X-Device-IP: 192.0.2.0")
	want := netip.MustParseAddr("192.0.2.0")
	testsupport.True(t, id.Client() == want, "Client is %v, want %v", id.Client(), want)

	id = resolve(t, &f, "2001:db8:9:9999:8:7:6:5", true)
	wantLines(t, linesOf(t, NewPolicy(PolicyOptions{Identity: Both}).AppendRequest(nil, &f, id)),
		"X-Forwarded-For: 2001:db8:9:9900::", "X-Device-IP: 2001:db8:9:9900::")
	if id = resolve(t, &f, "", true); id.Client().IsValid() {
		t.Errorf("Client of a socket is %v", id.Client())
	}
}

func TestIPv6ZonesAreNotForwarded(t *testing.T) {
	var f RequestFields
	id := resolve(t, &f, "fe80::1%eth0", false)
	wantLines(t, linesOf(t, NewPolicy(PolicyOptions{}).AppendRequest(nil, &f, id)), "X-Forwarded-For: fe80::1")
}

func TestResolveForgetsTheRequestBefore(t *testing.T) {
	var f RequestFields
	id := resolve(t, &f, "10.0.0.1", true, allIdentity...)
	mustScan(t, &f, head())
	id.Resolve(&f, testPeer, false, proxies, false)
	wantLines(t, linesOf(t, NewPolicy(PolicyOptions{Identity: Both}).AppendRequest(nil, &f, id)),
		"X-Forwarded-For: 198.51.100.9", "X-Device-IP: 198.51.100.9")
}

func TestParseAddrReadsWhatProxiesWrite(t *testing.T) {
	for in, want := range map[string]string{
		"0.0.0.0": "0.0.0.0", "255.255.255.255": "255.255.255.255", "1.2.3.4:1": "1.2.3.4", "1.2.3.4:65535": "1.2.3.4", " 1.2.3.4\t": "1.2.3.4",
		`"1.2.3.4"`: "1.2.3.4", "::": "::", "1::": "1::", "::1.2.3.4": "::102:304", "::ffff:1.2.3.4": "1.2.3.4", "[::ffff:1.2.3.4]:5": "1.2.3.4",
		"ABCD:ef01:2345:6789:abcd:ef01:192.168.100.200": "abcd:ef01:2345:6789:abcd:ef01:c0a8:64c8",

		"": "", `""`: "", `"`: "", "1.2.3": "", "1.2.3.4.5": "", "1.2.3.": "", ".1.2.3": "", "1..2.3": "", "1.2.3.256": "", "01.2.3.4": "", "1.2.3.04": "",
		"1.2.3.4:": "", "1.2.3.4:x": "", "1.2.3.4:123456": "", "1.2.3.4 5": "", "+1.2.3.4": "", "1.2.3.4%eth0": "", "1.2.3.99999999999999999999": "",
		"[]": "", "[": "", "[::1": "", "[::1]x": "", "[::1]:": "", "[1.2.3.4]": "", "[::1]]": "", ":": "", ":80": "", "1::2::3": "", "fe80::1%eth0": "", "[fe80::1%eth0]": "",
		"12345::": "", "a.example": "", "unknown": "", "_hidden": "", "a.example:80": "", "1:2:3:4:5:6:7:8:9": "", strings.Repeat("1:", 99): "",
	} {
		addr, ok := parseAddr([]byte(in))
		got := ""
		if ok {
			got = addr.String()
		}
		testsupport.Equal(t, got, want, "parseAddr(%[2]q) = %[1]q", in)
	}
}

func TestShortForwarded(t *testing.T) {
	for in, want := range map[string]string{
		"for=192.0.2.60;proto=http;by=203.0.113.43":    "for=192.0.2.0;proto=http;by=203.0.113.0",
		`For="[2001:db8:cafe:1234::17]:4711"`:          `For="[2001:db8:cafe:1200::]"`,
		`for="192.0.2.43:47011" ; host="h:1" , for=_x`: `for=192.0.2.0;host="h:1", for=_x`,
		`for=unknown;by="_secret:80"`:                  `for=unknown;by="_secret:80"`,
		"ext=192.0.2.1":                                "ext=192.0.2.0",
		"x=192.0.2.1":                                  "x=192.0.2.0",
		"":                                             "",
		"for":                                          "",
		"for=":                                         "",
		"for=192.0.2.1;":                               "",
		"for=192.0.2.1 for=192.0.2.2":                  "",
		"for=192.0.2":                                  "",
		"for=me":                                       "",
		"for=[2001:db8::1]":                            "",
		`for="192.0.2.1`:                               "",
		`for="192.0.2.1\""`:                            "",
		`for=_a;host="x\"`:                             "",
		`for=""`:                                       "",
		"fo r=192.0.2.1":                               "",
		"=192.0.2.1":                                   "",
		"ext=a":                                        "",
	} {
		got, ok := appendShortForwarded([]byte("X: "), []byte(in))
		testsupport.True(t, ok == (want != "") && string(got) == "X: "+want, "%q becomes %q, %v, want %q", in, got, ok, "X: "+want)
	}
}
