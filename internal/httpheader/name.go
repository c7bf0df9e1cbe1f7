package httpheader

import "adbuffer/internal/httpsyntax"

// nameID is a field name that the proxy knows. Zero is any other name.
type nameID uint8

const (
	unknownName nameID = iota

	// Ordinary fields whose values are looked at.
	nameContentType
	nameContentEncoding
	nameUserAgent
	nameDate
	nameVia

	// Fields that never cross.
	nameHost
	nameContentLength
	nameTransferEncoding
	nameConnection
	nameHopByHop // every other hop-by-hop field
	nameSSP      // X-Adbuffer-Ssp
	nameControl  // X-Adbuffer-*

	// Fields that cross if passed.
	nameGuarded         // in requests
	nameGuardedResponse // in answers; ordinary in requests

	// Identity.
	nameForwardedFor
	nameForwarded
	nameForwardedAddr
	nameForwardedOther
	nameDeviceIP
	nameDeviceUserAgent
	nameDeviceOther

	nameIDs // how many there are
)

// requestKinds is what each known name makes of a request field.
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

// identify returns which known name this is, in any case and with '_' read as '-'.
func identify(name []byte) nameID {
	if len(name) == 0 {
		return unknownName
	}
	first := plain[name[0]]
	switch len(name) {
	case 2:
		if is(name, "te") {
			return nameHopByHop
		}
	case 3:
		if is(name, "via") {
			return nameVia
		}
	case 4:
		switch first {
		case 'h':
			if is(name, "host") {
				return nameHost
			}
		case 'd':
			if is(name, "date") {
				return nameDate
			}
		}
	case 5:
		// Not a field of HTTP: CGI hands it to programs as HTTP_PROXY, which some of them obey ("httpoxy").
		if is(name, "proxy") {
			return nameGuarded
		}
	case 6:
		switch first {
		case 'c':
			if is(name, "cookie") {
				return nameGuarded
			}
		case 'e':
			if is(name, "expect") {
				return nameHopByHop
			}
		}
	case 7:
		switch first {
		case 't':
			if is(name, "trailer") {
				return nameHopByHop
			}
		case 'u':
			if is(name, "upgrade") {
				return nameHopByHop
			}
		case 'a':
			if is(name, "alt-svc") {
				return nameGuardedResponse
			}
		case 'c':
			if is(name, "cookie2") {
				return nameGuarded
			}
		}
	case 9:
		switch first {
		case 'x':
			if is(name, "x-real-ip") {
				return nameForwardedAddr
			}
		case 'f':
			if is(name, "forwarded") {
				return nameForwarded
			}
		case 'c':
			if is(name, "client-ip") {
				return nameForwardedAddr
			}
		}
	case 10:
		switch first {
		case 'u':
			if is(name, "user-agent") {
				return nameUserAgent
			}
		case 'c':
			if is(name, "connection") {
				return nameConnection
			}
		case 'k':
			if is(name, "keep-alive") {
				return nameHopByHop
			}
		case 's':
			if is(name, "set-cookie") {
				return nameGuardedResponse
			}
		case 'x':
			if is(name, "x-adbuffer") {
				return nameControl
			}
		}
	case 11:
		switch first {
		case 'x':
			switch {
			case is(name, "x-device-ip"):
				return nameDeviceIP
			case is(name, "x-forwarded"):
				return nameForwarded
			case is(name, "x-client-ip"):
				return nameForwardedAddr
			}
		case 's':
			if is(name, "set-cookie2") {
				return nameGuardedResponse
			}
		}
	case 12:
		if first == 'c' && is(name, "content-type") {
			return nameContentType
		}
	case 13:
		if first == 'a' && is(name, "authorization") {
			return nameGuarded
		}
	case 14:
		switch first {
		case 'c':
			if is(name, "content-length") {
				return nameContentLength
			}
		case 't':
			if is(name, "true-client-ip") {
				return nameForwardedAddr
			}
		case 'x':
			if is(name, "x-adbuffer-ssp") {
				return nameSSP
			}
		case 'h':
			if is(name, "http2-settings") {
				return nameHopByHop
			}
		}
	case 15:
		switch first {
		case 'x':
			if is(name, "x-forwarded-for") {
				return nameForwardedFor
			}
		case 'c':
			if is(name, "clear-site-data") {
				return nameGuardedResponse
			}
		}
	case 16:
		switch first {
		case 'c':
			switch {
			case is(name, "content-encoding"):
				return nameContentEncoding
			case is(name, "cf-connecting-ip"):
				return nameForwardedAddr
			}
		case 'f':
			if is(name, "fastly-client-ip") {
				return nameForwardedAddr
			}
		case 'p':
			if is(name, "proxy-connection") {
				return nameHopByHop
			}
		}
	case 17:
		if first == 't' && is(name, "transfer-encoding") {
			return nameTransferEncoding
		}
	case 19:
		if first == 'x' {
			switch {
			case is(name, "x-device-user-agent"):
				return nameDeviceUserAgent
			case is(name, "x-cluster-client-ip"):
				return nameForwardedAddr
			}
		}
	case 24:
		if first == 'x' && is(name, "x-original-forwarded-for") {
			return nameForwardedAddr
		}
	case 25:
		if first == 's' && is(name, "strict-transport-security") {
			return nameGuardedResponse
		}
	}

	switch {
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

// is reports whether name, which is as long as want, reads as want, a name of lower-case letters and '-'.
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
	t := httpsyntax.Lower
	t['_'] = '-'
	return t
}()

// nameClass is, of a byte of a token, underscore for '_' and 1 for any other; of any other byte 0.
var nameClass = func() (t [256]byte) {
	for i, c := range httpsyntax.Lower {
		if c != 0 {
			t[i] = 1
		}
	}
	t['_'] = underscore
	return t
}()

const underscore = 2
