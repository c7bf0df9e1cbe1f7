package header

import "adbuffer/internal/wire/syntax"

// AppendRequest appends to dst a "Name: value\r\n" line for every field of f that is forwarded, in the original order
// and spelling. After them come the identity fields, Via, the request id, and the fields that the policy sets.
// AppendRequest changes neither f nor id, so legs may share them.
func (p *Policy) AppendRequest(dst []byte, f *RequestFields, id *Identity) []byte {
	actions := &p.actions[id.trustRow()]
	// Adjacent lines that are forwarded unchanged are copied in one piece: raw[from:to].
	from, to := 0, 0
	for i := range f.fields {
		field := &f.fields[i]
		start := to
		to = field.end
		act := actions[field.id]
		if act == copyLine && field.verbatim && !field.withheld && !p.drops(field.Name) {
			continue
		}
		dst = append(dst, f.raw[from:start]...)
		from = to
		if act != drop && !field.withheld && !p.drops(field.Name) {
			dst = p.appendField(dst, field, act)
		}
	}
	dst = append(dst, f.raw[from:to]...)

	if p.forwardedFor {
		dst = id.appendForwardedFor(dst)
	}
	if p.deviceIP {
		dst = id.appendDeviceIP(dst)
	}
	if p.deviceUserAgent {
		dst = id.appendDeviceUserAgent(dst)
	}
	dst = append(dst, p.via[f.version()]...)
	if p.sendRequestID && f.id.n > 0 {
		dst = append(append(append(append(dst, p.requestID...), ": "...), f.RequestID()...), "\r\n"...)
	}
	return append(dst, p.set...)
}

// trustRow returns the row of Policy.actions for a request with this identity.
func (id *Identity) trustRow() int {
	switch {
	case !id.trusted:
		return untrustedPeer
	case id.truncate:
		return trustedPeerTruncate
	}
	return trustedPeer
}

// appendField appends the line of a field that is not copied with its neighbours, or nothing.
func (p *Policy) appendField(dst []byte, field *Field, act action) []byte {
	value := field.Value
	before := len(dst)
	switch act {
	case copyIfPassed:
		if !p.passes(field.Name) {
			return dst
		}
	case shortenAddrs:
		short, addrs, others := appendShortAddrs(appendName(dst, field.Name), value)
		if addrs == 0 && others > 0 && field.id != nameForwardedAddr {
			break // the value holds no addresses
		}
		if others > 0 {
			return dst[:before] // bytes that cannot be parsed may still be an address
		}
		return append(short, "\r\n"...)
	case shortenForwarded:
		short, ok := appendShortForwarded(appendName(dst, field.Name), value)
		if !ok {
			return dst[:before]
		}
		return append(short, "\r\n"...)
	}
	return syntax.AppendField(dst, field.Name, value)
}

func appendName(dst, name []byte) []byte {
	dst = append(dst, name...)
	return append(dst, ": "...)
}
