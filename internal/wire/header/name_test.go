package header

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// addressFields are fields whose value is the client's address.
const addressFields = "X-Real-IP Client-IP X-Client-IP True-Client-IP X-Cluster-Client-IP X-Original-Forwarded-For Forwarded-For Forwarded-For-IP " +
	"HTTP-Client-IP HTTP-X-Forwarded-For Remote-Addr X-Remote-Addr X-Remote-IP X-Originating-IP X-Source-IP X-User-IP X-ProxyUser-Ip WL-Proxy-Client-IP " +
	"CF-Connecting-IP CF-Connecting-IPv6 CF-Pseudo-IPv4 Fastly-Client-IP Fly-Client-IP DO-Connecting-IP X-Nf-Client-Connection-Ip X-Vercel-Forwarded-For " +
	"X-Vercel-Proxied-For X-Sucuri-ClientIP Incap-Client-IP X-Azure-ClientIP X-Azure-SocketIP X-Appengine-User-Ip CloudFront-Viewer-Address " +
	"X-Envoy-External-Address Ali-CDN-Real-IP Cdn-Src-Ip EO-Connecting-IP EO-Client-IP X-MS-Forwarded-Client-IP"

func TestIdentifyKnowsEachNameInAnySpellingAndNoOther(t *testing.T) {
	for names, want := range map[string]nameID{
		"Host": nameHost, "Content-Length": nameContentLength, "Transfer-Encoding": nameTransferEncoding, "Connection": nameConnection,
		"Content-Type": nameContentType, "Content-Encoding": nameContentEncoding, "User-Agent": nameUserAgent, "Date": nameDate, "Via": nameVia,
		"TE Expect Trailer Upgrade Keep-Alive HTTP2-Settings Proxy-Connection": nameHopByHop,
		"X-Adbuffer-Ssp": nameSSP, "X-Adbuffer X-Adbuffer-Timeout-Ms": nameControl,
		"Cookie Cookie2 Authorization Proxy Proxy-Authorization Proxy-Client-IP":   nameGuarded,
		"Set-Cookie Set-Cookie2 Clear-Site-Data Alt-Svc Strict-Transport-Security": nameGuardedResponse,
		"X-Forwarded-For": nameForwardedFor, "Forwarded X-Forwarded": nameForwarded, "X-Forwarded-Host X-Forwarded-A": nameForwardedOther,
		"X-Device-IP": nameDeviceIP, "X-Device-User-Agent": nameDeviceUserAgent, "X-Device-Geo": nameDeviceOther,
		addressFields: nameForwardedAddr,
		"X Accept Hosts Hos X-Forwardee-For X-Devices-A Proxies " + strings.Repeat("x", 300): unknownName,
	} {
		for _, name := range strings.Fields(names) {
			for _, spelling := range []string{name, strings.ToUpper(name), strings.ReplaceAll(name, "-", "_")} {
				got := identify([]byte(spelling))
				testsupport.True(t, got == want, "%s: %v, want %v", spelling, got, want)
			}
			got := identify([]byte(name + "~"))
			testsupport.True(t, want != nameForwardedAddr || got == unknownName, "%s~ is identified as %v", name, got)
		}
	}
	testsupport.True(t, identify(nil) == unknownName, "the empty name has an id")
}

// No field that may carry a client's address passes it on unshortened, and an untrusted peer's field is dropped.
func TestTheAddressCrossesShortenedInEachFieldOfATrustedPeerAndNotAtAllOfAnother(t *testing.T) {
	for _, name := range strings.Fields(addressFields) {
		for _, row := range []struct {
			peer string
			want bool
		}{{"10.0.0.1", true}, {"198.51.100.9", false}} {
			var f RequestFields
			id := resolve(t, &f, row.peer, true, name+": 192.0.2.77")
			got := strings.Join(linesOf(t, NewPolicy(PolicyOptions{}).AppendRequest(nil, &f, id)), "\n")
			testsupport.True(t, !strings.Contains(got, "192.0.2.77") && strings.Contains(got, name+": 192.0.2.0") == row.want, "%s from %s: %s", name, row.peer, got)
		}
	}
}
