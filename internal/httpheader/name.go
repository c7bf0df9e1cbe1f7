package httpheader

import "adbuffer/internal/syntax"

// nameID identifies a field name that the proxy knows. Zero is any other name.
type nameID uint8

const (
	unknownName nameID = iota

	// Ordinary fields whose values adbuffer reads.
	nameContentType
	nameContentEncoding
	nameUserAgent
	nameDate
	nameVia

	// Fields that are never forwarded.
	nameHost
	nameContentLength
	nameTransferEncoding
	nameConnection
	nameHopByHop // every other hop-by-hop field
	nameSSP      // X-Adbuffer-Ssp
	nameControl  // X-Adbuffer-*

	// Fields that are forwarded if passed.
	nameGuarded         // in requests
	nameGuardedResponse // in responses; ordinary in requests

	// Identity fields.
	nameForwardedFor
	nameForwarded
	nameForwardedAddr
	nameForwardedOther
	nameDeviceIP
	nameDeviceUserAgent
	nameDeviceOther

	nameIDs // the number of names
)

// requestKinds maps each known name to the kind of a request field.
var requestKinds = [nameIDs]kind{
	nameHost:             never,
	nameContentLength:    never,
	nameTransferEncoding: never,
	nameConnection:       never,
	nameHopByHop:         never,
	nameSSP:              never,
	nameControl:          never,
	nameGuarded:          guarded,
	nameForwardedFor:     forwardedFor,
	nameForwarded:        forwarded,
	nameForwardedAddr:    forwardedAddr,
	nameForwardedOther:   forwardedOther,
	nameDeviceIP:         deviceIP,
	nameDeviceUserAgent:  deviceUserAgent,
	nameDeviceOther:      deviceOther,
}

// known are the names with an id, in lower case and with '-' for '_'.
var known = []struct {
	name string
	id   nameID
}{
	{"host", nameHost}, {"content-length", nameContentLength}, {"transfer-encoding", nameTransferEncoding}, {"connection", nameConnection},
	{"content-type", nameContentType}, {"content-encoding", nameContentEncoding}, {"user-agent", nameUserAgent}, {"date", nameDate}, {"via", nameVia},
	{"te", nameHopByHop}, {"expect", nameHopByHop}, {"trailer", nameHopByHop}, {"upgrade", nameHopByHop}, {"keep-alive", nameHopByHop},
	{"http2-settings", nameHopByHop}, {"proxy-connection", nameHopByHop},
	{"x-adbuffer-ssp", nameSSP}, {"x-adbuffer", nameControl},
	{"cookie", nameGuarded}, {"cookie2", nameGuarded}, {"authorization", nameGuarded},
	{"proxy", nameGuarded}, // CGI passes it to programs as HTTP_PROXY, which some of them use ("httpoxy")
	{"set-cookie", nameGuardedResponse}, {"set-cookie2", nameGuardedResponse}, {"clear-site-data", nameGuardedResponse},
	{"alt-svc", nameGuardedResponse}, {"strict-transport-security", nameGuardedResponse},
	{"x-forwarded-for", nameForwardedFor}, {"forwarded", nameForwarded}, {"x-forwarded", nameForwarded},
	{"x-real-ip", nameForwardedAddr}, {"client-ip", nameForwardedAddr}, {"x-client-ip", nameForwardedAddr}, {"true-client-ip", nameForwardedAddr},
	{"cf-connecting-ip", nameForwardedAddr}, {"fastly-client-ip", nameForwardedAddr}, {"x-cluster-client-ip", nameForwardedAddr},
	{"x-original-forwarded-for", nameForwardedAddr},
	{"x-device-ip", nameDeviceIP}, {"x-device-user-agent", nameDeviceUserAgent},
}

// slots holds each known name at its slot: slots[slot(name)]. No two known names have the same
// slot. After a change of known, slot may need other factors.
var slots = func() (t [128]struct {
	name string
	id   nameID
}) {
	for _, k := range known {
		s := &t[slot([]byte(k.name))]
		if s.name != "" {
			panic("BUG: " + k.name + " and " + s.name + " have the same slot")
		}
		*s = k
	}
	return t
}()

// slot returns a number below 128 from the length, the first, the middle and the last byte of a
// name that is not empty.
func slot(name []byte) int {
	n := len(name)
	return (n*97 + int(plain[name[0]])*75 + int(plain[name[n-1]])*131 + int(plain[name[n/2]])*231) >> 2 & 127
}

// identify returns the id of a name, in any case and with '_' read as '-'.
func identify(name []byte) nameID {
	if len(name) == 0 {
		return unknownName
	}
	if k := &slots[slot(name)]; len(k.name) == len(name) && is(name, k.name) {
		return k.id
	}
	switch first := plain[name[0]]; {
	case first == 'x' && len(name) > 9:
		switch {
		case plain[name[2]] == 'f' && hasPrefix(name, "x-forwarded-"):
			return nameForwardedOther
		case plain[name[2]] == 'd' && hasPrefix(name, "x-device-"):
			return nameDeviceOther
		case plain[name[2]] == 'a' && hasPrefix(name, "x-adbuffer-"):
			return nameControl
		}
	case first == 'p' && hasPrefix(name, "proxy-"):
		return nameGuarded
	}
	return unknownName
}

// is reports whether name, which is as long as want, reads as want, a name of lower-case letters
// and '-'.
func is(name []byte, want string) bool {
	for i := range name {
		if i >= len(want) || plain[name[i]] != want[i] {
			return false
		}
	}
	return true
}

func hasPrefix(name []byte, prefix string) bool {
	return len(name) >= len(prefix) && is(name[:len(prefix)], prefix)
}

// plain maps each byte of a token to lower case, with '_' as '-', and all other bytes to 0.
var plain = func() [256]byte {
	t := syntax.Lower
	t['_'] = '-'
	return t
}()

// nameClass maps '_' to underscore, any other byte of a token to 1, and all other bytes to 0.
var nameClass = func() (t [256]byte) {
	for i, c := range syntax.Lower {
		if c != 0 {
			t[i] = 1
		}
	}
	t['_'] = underscore
	return t
}()

const underscore = 2
