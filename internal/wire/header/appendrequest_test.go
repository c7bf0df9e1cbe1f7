package header

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"

	"github.com/google/go-cmp/cmp"
)

var testPeer = netip.MustParseAddr("198.51.100.9")

// cross returns the forwarded lines of a request with the given lines under o. trusted says whether
// its peer is trusted. Identity lines are those of o's mode.
func cross(t *testing.T, o PolicyOptions, trusted bool, lines ...string) []string {
	t.Helper()
	var f RequestFields
	var id Identity
	mustScan(t, &f, head(lines...))
	id.Resolve(&f, testPeer, trusted, nil, false)
	return linesOf(t, NewPolicy(o).AppendRequest(nil, &f, &id))
}

func linesOf(t *testing.T, block []byte) []string {
	t.Helper()
	if len(block) == 0 {
		return nil
	}
	text, ended := strings.CutSuffix(string(block), "\r\n")
	testsupport.MustTrue(t, ended, "block %q does not end a line", block)
	return strings.Split(text, "\r\n")
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	testsupport.Equal(t, cmp.Diff(want, got), "", "lines that cross (-want +got):\n%s")
}

var noIdentity = PolicyOptions{Identity: None}

func TestOrdinaryFieldsAreForwardedInOrderAndSpelling(t *testing.T) {
	wantLines(t, cross(t, noIdentity, true,
		"user-AGENT: phone", "Accept:*/*", "x_custom:  a  b ", "Empty:", "X-A: 1", "Cookie: secret", "X-A: 2", "Content-Type: text/plain",
		"Content-Encoding: gzip", "Accept-Encoding: br", "Cache-Control: no-cache", "Via: 1.1 edge", "X-Forward: 1", "X-Devices: 2", "X-Adbuffers: 3", "X-B: b \t", "X-C:  c"),
		"user-AGENT: phone", "Accept: */*", "x_custom: a  b", "Empty: ", "X-A: 1", "X-A: 2", "Content-Type: text/plain",
		"Content-Encoding: gzip", "Accept-Encoding: br", "Cache-Control: no-cache", "Via: 1.1 edge", "X-Forward: 1", "X-Devices: 2", "X-Adbuffers: 3", "X-B: b", "X-C: c")
}

func TestReservedFieldsAreNeverForwarded(t *testing.T) {
	every := PolicyOptions{Identity: Both}
	for _, line := range []string{
		"Connection: close", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "TE: trailers", "Trailer: Expires",
		"Transfer-Encoding: chunked", "Upgrade: websocket", "Expect: 100-continue", "HTTP2-Settings: AAMAAABkAAQ",
		"Content-Length: 3", "X-Adbuffer-Ssp: a", "X-Adbuffer-Timeout-Ms: 100", "X-ADBUFFER-Anything: 1", "X-Adbuffer: 1",
		// These names only look like special ones.
		"keep_alive: timeout=5", "Proxy_Connection: keep-alive", "Transfer_Encoding: gzip", "HTTP2_Settings: AAMAAABkAAQ",
		"Content_Length: 3", "X_Adbuffer_Ssp: a", "X-Adbuffer_Timeout-Ms: 100", "x_adbuffer_anything: 1",
		"X_Forwarded_For: 192.0.2.1", "X-Forwarded_For: 192.0.2.1", "X_Forwarded_Proto: https", "X_Real_IP: 192.0.2.1",
		"True_Client_IP: 192.0.2.1", "X_Device_IP: 192.0.2.1", "X_Device_User_Agent: tv", "X_Device_Referer: https://a.example",
	} {
		name, _, _ := strings.Cut(line, ":")
		every.Pass = []string{name}
		for _, variant := range []string{line, strings.ToUpper(line), strings.ToLower(line)} {
			got := cross(t, every, true, "X-Before: 1", variant, "X-After: 2")
			wantLines(t, got, "X-Before: 1", "X-After: 2", "X-Forwarded-For: 198.51.100.9", "X-Device-IP: 198.51.100.9")
		}
	}
}

func TestFieldsThatConnectionNamesAreNotForwarded(t *testing.T) {
	pass := PolicyOptions{Identity: None, Pass: []string{"Cookie"}}
	wantLines(t, cross(t, pass, true, "X-Hop: 1", "Cookie: a=b", "X-A: 2", "Connection: close, X-hop,,  cookie", "CONNECTION: X-More", "x-MORE: 3", "x_hop: 4"), "X-A: 2")
	wantLines(t, cross(t, noIdentity, true, "X-Hop: 1", "Connection: X-Hop", "Content-Type: application/grpc", "Grpc-Timeout: 1S"), "Content-Type: application/grpc")
	wantLines(t, cross(t, noIdentity, true, "X-A: 1", `Connection: "X-A", X-A;q=1, X A`), "X-A: 1")
}

func TestConnectionCannotHideTheClient(t *testing.T) {
	got := cross(t, PolicyOptions{Identity: Both}, true, "X-Forwarded-For: 192.0.2.1", "X-Device-User-Agent: tv", "X-Forwarded-Proto: https",
		"Connection: X-Forwarded-For, X-Device-IP, X-Device-User-Agent, X-Forwarded-Proto")
	wantLines(t, got, "X-Forwarded-For: 192.0.2.1, 198.51.100.9", "X-Device-IP: 192.0.2.1", "X-Device-User-Agent: tv")
}

func TestGuardedFieldsCrossOnlyIfPassed(t *testing.T) {
	guardedLines := []string{"Cookie: a=b", "Cookie: c=d", "Cookie2: $Version=1", "Authorization: Basic eA==", "Proxy-Authorization: Basic eA==", "Proxy-Anything: 1", "Proxy: http://evil.example", "Proxy_Authorization: Basic eA=="}
	wantLines(t, cross(t, noIdentity, true, guardedLines...))
	wantLines(t, cross(t, PolicyOptions{Identity: None, Pass: []string{"cOOKIE"}}, true, guardedLines...), "Cookie: a=b", "Cookie: c=d")
	wantLines(t, cross(t, PolicyOptions{Identity: None, Pass: []string{"Authorization", "proxy-authorization"}}, true, guardedLines...),
		"Authorization: Basic eA==", "Proxy-Authorization: Basic eA==")
	wantLines(t, cross(t, PolicyOptions{Identity: None, Pass: []string{"Proxy_Authorization"}}, true, guardedLines...), "Proxy_Authorization: Basic eA==")
}

func TestDroppedFieldsNameTheirSetting(t *testing.T) {
	lines := []string{
		"Authorization: Bearer x", "Cookie: a=b", "Accept: */*", "User-Agent: phone", "Connection: X-Hop", "X-Hop: 1", "X-Adbuffer-Ssp: a", "X-Debug: 1", "X-Key: 2",
		"X-Real-IP: 192.0.2.1", "X-Forwarded-For: 192.0.2.1", "X-Device-IP: 192.0.2.1", "X_Forwarded_For: 1",
	}
	o := PolicyOptions{Pass: []string{"cookie"}, Remove: []string{"x-debug"}, Set: []NameValue{{Name: "X-Key", Value: "3"}}}
	dropped := func(trusted bool, mode IdentityMode) []string {
		t.Helper()
		var f RequestFields
		var id Identity
		mustScan(t, &f, head(lines...))
		id.Resolve(&f, testPeer, trusted, nil, false)
		o.Identity = mode
		return NewPolicy(o).Dropped(&f, &id)
	}
	always := []string{"Authorization: headers.pass does not name it", "X-Debug: headers.remove removes it", "X-Key: headers.set replaces it"}
	device, like := "X-Device-IP: headers.identity decides whether it is forwarded", "X_Forwarded_For: some servers read its '_' as '-'"
	wantLines(t, dropped(true, XForwardedFor), append(slices.Clone(always), device, like)...)
	wantLines(t, dropped(false, XForwardedFor), append(slices.Clone(always), "X-Real-IP: server.trusted_proxies does not contain the peer", device, like)...)
	wantLines(t, dropped(true, None), append(slices.Clone(always), "X-Real-IP: headers.identity decides whether it is forwarded", "X-Forwarded-For: headers.identity decides whether it is forwarded", device, like)...)
}

func TestRemoveRunsBeforeSetAndSetReplaces(t *testing.T) {
	o := PolicyOptions{
		Identity: None,
		Pass:     []string{"Cookie"},
		Remove:   []string{"X-Internal", "x-openrtb-version", "Cookie"},
		Set:      []NameValue{{"X-Openrtb-Version", " 2.6 "}, {"Accept-Encoding", "gzip"}, {"X-Two", "1"}, {"X-Two", "2"}},
	}
	wantLines(t, cross(t, o, true, "x-INTERNAL: 1", "X_Internal: 2", "X-Internals: 3", "Y-Internal: 4", "X-Openrtb-Version: 2.5", "x_openrtb_version: 2.4",
		"accept-encoding: br", "Cookie: a=b", "X-Two: 0", "Cookie-Box: 5", "X-Openrtb-: 6"), // as long as X-Internal: one begins with a removed name, the other is its begin
		"X-Internals: 3", "Y-Internal: 4", "Cookie-Box: 5", "X-Openrtb-: 6", "X-Openrtb-Version: 2.6", "Accept-Encoding: gzip", "X-Two: 1", "X-Two: 2")
}

func TestRemoveAndSetRuleOverIdentity(t *testing.T) {
	o := PolicyOptions{
		Identity: Both,
		Remove:   []string{"X-Forwarded-For", "X-Device-User-Agent"},
		Set:      []NameValue{{"X-Device-IP", "192.0.2.99"}},
	}
	wantLines(t, cross(t, o, true, "X-Forwarded-For: 192.0.2.1", "X-Device-IP: 192.0.2.1", "X-Device-User-Agent: tv", "User-Agent: phone"),
		"User-Agent: phone", "X-Device-IP: 192.0.2.99")
}

func TestWithReplacesWhatThePolicySets(t *testing.T) {
	p := NewPolicy(PolicyOptions{
		Identity: None,
		Pass:     []string{"Cookie"},
		Remove:   []string{"X-Internal"},
		Set:      []NameValue{{"Accept-Encoding", "gzip"}, {"X-Key", "1"}},
	})
	leg := p.With(NameValue{"accept_encoding", "identity"})
	var f RequestFields
	mustScan(t, &f, head("Cookie: a=b", "X-Internal: 1", "Accept-Encoding: br"))
	wantLines(t, linesOf(t, leg.AppendRequest(nil, &f, &Identity{})), "Cookie: a=b", "accept_encoding: identity", "X-Key: 1")
	wantLines(t, linesOf(t, p.AppendRequest(nil, &f, &Identity{})), "Cookie: a=b", "Accept-Encoding: gzip", "X-Key: 1")
}

func TestOptionsThatTheChecksRefuseHaveNoEffect(t *testing.T) {
	o := PolicyOptions{
		Identity: None,
		Pass:     []string{"Host", "Connection", "X-Forwarded-For", "bad name"},
		Remove:   []string{"", "bad\r\nname"},
		Set:      []NameValue{{"Host", "evil.example"}, {"X-A", "1\r\nX-B: 2"}, {"", "1"}, {"Content-Length", "5"}, {"X-Adbuffer-Ssp", "a"}},
	}
	wantLines(t, cross(t, o, true, "Connection: close", "X-Forwarded-For: 192.0.2.1", "X-C: 3"), "X-C: 3")
}

func TestChecksSayWhatMakesNoSense(t *testing.T) {
	for _, tt := range []struct{ what, name, want string }{
		{"pass", "Cookie", ""},
		{"pass", "set-cookie", ""},
		{"pass", "Accept", ""},
		{"pass", "Proxy-Authorization", ""},
		{"pass", "Expect", "Expect never crosses the proxy"},
		{"pass", "x_adbuffer_ssp", "x_adbuffer_ssp never crosses the proxy"},
		{"pass", "X-Forwarded-Proto", "X-Forwarded-Proto is an identity field; see identity"},
		{"pass", "Co okie", errNotToken.Error()},
		{"set", "X-Key", ""},
		{"set", "Cookie", ""},
		{"set", "X-Forwarded-For", ""},
		{"set", "Host", "Host is set by the SSP's key host"},
		{"set", "Transfer-Encoding", "Transfer-Encoding never crosses the proxy"},
		{"set", "X\nKey", errNotToken.Error()},
	} {
		var err error
		switch tt.what {
		case "pass":
			err = CheckPass(tt.name)
		case "set":
			err = CheckSet(NameValue{tt.name, "tab\there, \xfc, colon:"})
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		testsupport.True(t, got == tt.want, "%s %q: %q, want %q", tt.what, tt.name, got, tt.want)
	}
	for c := range 256 {
		err := CheckSet(NameValue{"X-Key", "a" + string([]byte{byte(c)}) + "b"})
		bad := c < 0x20 && c != '\t' || c == 0x7f
		testsupport.True(t, bad == (err != nil), "set a value with byte %#x: %v", c, err)
	}
}
