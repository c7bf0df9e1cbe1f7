package header

import (
	"bytes"

	"adbuffer/internal/wire/syntax"
)

// nameID identifies a field name that the proxy knows, or a kind of names that it handles in the same way. Zero
// stands for all other names, whose fields are ordinary.
type nameID uint8

const (
	unknownName nameID = iota

	// Ordinary fields, most of whose values adbuffer reads.
	nameContentType
	nameContentEncoding
	nameUserAgent
	nameDate
	nameVia
	nameGRPCTimeout
	nameGuardedResponse // Set-Cookie and others: in responses, forwarded if passed by name

	nameGuarded // forwarded if passed by name

	// Fields that are never forwarded; see neverForwarded.
	nameLookAlike // a name that is special only with '_' read as '-'
	nameHost
	nameContentLength
	nameTransferEncoding
	nameConnection
	nameHopByHop // every other hop-by-hop field
	nameSSP      // X-Adbuffer-Ssp
	nameControl  // X-Adbuffer-*

	// Identity fields.
	nameForwardedFor    // X-Forwarded-For: the list of addresses that adbuffer continues
	nameForwarded       // Forwarded, RFC 7239
	nameForwardedAddr   // X-Real-IP and similar fields: only addresses
	nameForwardedOther  // X-Forwarded-Proto, X-Forwarded-Host and the other X-Forwarded-*
	nameDeviceIP        // X-Device-IP
	nameDeviceUserAgent // X-Device-User-Agent
	nameDeviceOther     // X-Device-Referer and the other X-Device-*

	nameIDs // the number of names
)

func (id nameID) neverForwarded() bool { return id >= nameLookAlike && id <= nameControl }
func (id nameID) isIdentity() bool     { return id >= nameForwardedFor }

// longestName is the length of the longest name that identify knows, in bytes.
const longestName = len("x-nf-client-connection-ip")

// identify returns the id of a name, in any case and with '_' read as '-'.
func identify(name []byte) nameID {
	var lower [longestName]byte
	fold(&lower, name)
	return idOf(&lower, len(name))
}

// fold returns the length of the token at the start of b. It copies as much of the token as fits into lower, in lower
// case and with '-' for '_'.
func fold(lower *[longestName]byte, b []byte) int {
	for i, c := range b {
		c = folded[c]
		if c == 0 {
			return i
		}
		if i < len(lower) {
			lower[i] = c
		}
	}
	return len(b)
}

// idOf returns the id of a name with n bytes that fold has copied to lower.
func idOf(lower *[longestName]byte, n int) nameID {
	known := lower[:min(n, longestName)]
	if n <= longestName {
		if id := knownName(known); id != unknownName {
			return id
		}
	}
	switch {
	case bytes.HasPrefix(known, []byte("x-forwarded-")):
		return nameForwardedOther
	case bytes.HasPrefix(known, []byte("x-device-")):
		return nameDeviceOther
	case bytes.HasPrefix(known, []byte("x-adbuffer-")):
		return nameControl
	case bytes.HasPrefix(known, []byte("proxy-")):
		return nameGuarded
	}
	return unknownName
}

// knownName returns the id of a name in lower case, with '-' for '_'.
func knownName(name []byte) nameID {
	switch string(name) {
	case "host":
		return nameHost
	case "content-length":
		return nameContentLength
	case "transfer-encoding":
		return nameTransferEncoding
	case "connection":
		return nameConnection
	case "content-type":
		return nameContentType
	case "content-encoding":
		return nameContentEncoding
	case "user-agent":
		return nameUserAgent
	case "date":
		return nameDate
	case "grpc-timeout":
		return nameGRPCTimeout
	case "via":
		return nameVia
	case "te", "expect", "trailer", "upgrade", "keep-alive", "http2-settings", "proxy-connection":
		return nameHopByHop
	case "x-adbuffer-ssp":
		return nameSSP
	case "x-adbuffer":
		return nameControl
	case "cookie", "cookie2", "authorization",
		"proxy": // CGI passes it to programs as HTTP_PROXY, which some of them use ("httpoxy")
		return nameGuarded
	case "set-cookie", "set-cookie2", "clear-site-data", "alt-svc", "strict-transport-security":
		return nameGuardedResponse
	case "x-forwarded-for":
		return nameForwardedFor
	case "forwarded", "x-forwarded":
		return nameForwarded
	case "x-real-ip", "client-ip", "x-client-ip", "true-client-ip", "x-cluster-client-ip", "x-original-forwarded-for",
		"forwarded-for", "forwarded-for-ip", "http-client-ip", "http-x-forwarded-for", "remote-addr", "x-remote-addr", "x-remote-ip",
		"x-originating-ip", "x-source-ip", "x-user-ip", "x-proxyuser-ip", "wl-proxy-client-ip",
		"cf-connecting-ip", "cf-connecting-ipv6", "cf-pseudo-ipv4", // Cloudflare
		"fastly-client-ip", "fly-client-ip", "do-connecting-ip", "x-nf-client-connection-ip", // Fastly, Fly.io, DigitalOcean, Netlify
		"x-vercel-forwarded-for", "x-vercel-proxied-for", "x-sucuri-clientip", "incap-client-ip", // Vercel, Sucuri, Imperva
		"x-azure-clientip", "x-azure-socketip", "x-appengine-user-ip", "cloudfront-viewer-address", // Azure, Google, AWS
		"x-envoy-external-address", "ali-cdn-real-ip", "cdn-src-ip", // Envoy, Alibaba and Tencent
		"eo-connecting-ip", "eo-client-ip", "x-ms-forwarded-client-ip": // Tencent EdgeOne, Microsoft AD FS
		return nameForwardedAddr
	case "x-device-ip":
		return nameDeviceIP
	case "x-device-user-agent":
		return nameDeviceUserAgent
	}
	return unknownName
}

// folded maps each byte of a token to lower case, with '_' as '-', and all other bytes to 0.
var folded = func() [256]byte {
	t := syntax.Lower
	t['_'] = '-'
	return t
}()
