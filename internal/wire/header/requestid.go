package header

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"adbuffer/internal/wire/syntax"
)

// maxRequestID is how long a request id of a trusted peer may be, in bytes.
const maxRequestID = 128

// requestID is the id of one request: [A-Za-z0-9._-]{1,128}.
type requestID struct {
	text [maxRequestID]byte
	n    int // bytes of text; 0 = no id yet
}

// CheckRequestID returns nil, or an error if name cannot be the field for request ids.
func CheckRequestID(name string) error {
	if !syntax.IsToken([]byte(name)) {
		return errNotToken
	}
	if identify([]byte(name)) != unknownName || hasOtherMeaning([]byte(name)) {
		return fmt.Errorf("%s has a meaning of its own", name)
	}
	return nil
}

// CheckDeadline returns nil, or an error if name cannot be the field for clients' deadlines.
func CheckDeadline(name string) error {
	switch id := identify([]byte(name)); {
	case !syntax.IsToken([]byte(name)):
		return errNotToken
	case id != unknownName && id != nameControl || hasOtherMeaning([]byte(name)):
		return fmt.Errorf("%s has a meaning of its own", name)
	}
	return nil
}

// hasOtherMeaning reports whether adbuffer uses a field of this name for another purpose.
func hasOtherMeaning(name []byte) bool {
	return syntax.EqualFold(name, "server") || syntax.EqualFold(name, "traceparent") || syntax.EqualFold(name, "tracestate")
}

// SetRequestID sets the request's id. It is the value of the client's field if the peer is trusted and the value is a
// valid id. Otherwise it is a new UUIDv7 with the time now. Scan and Reset remove the id.
func (f *RequestFields) SetRequestID(peerTrusted bool, now time.Time) {
	if peerTrusted && f.clientIDs == 1 && IsRequestID(f.clientID) {
		f.id.n = copy(f.id.text[:], f.clientID)
		return
	}
	f.id.n = len(AppendUUIDv7(f.id.text[:0], now))
}

// KeepRequestID sets the request's id, for a request that is handled a second time.
func (f *RequestFields) KeepRequestID(id string) { f.id.n = copy(f.id.text[:], id) }

// RequestID returns the request's id, empty before SetRequestID. It is valid as long as f is not
// changed.
func (f *RequestFields) RequestID() []byte { return f.id.text[:f.id.n] }

// IsRequestID reports whether v has the form of a request's id: [A-Za-z0-9._-]{1,128}.
func IsRequestID[T string | []byte](v T) bool {
	if len(v) == 0 || len(v) > maxRequestID {
		return false
	}
	for i := range len(v) {
		switch c := v[i]; {
		case syntax.IsDigit(c), 'a' <= c|0x20 && c|0x20 <= 'z', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// AppendUUIDv7 appends a UUID of version 7 (RFC 9562, section 5.7): 48 bits of Unix milliseconds,
// and 74 random bits.
func AppendUUIDv7(dst []byte, now time.Time) []byte {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], uint64(now.UnixMilli())<<16|rand.Uint64()&0x0fff|0x7000)
	binary.BigEndian.PutUint64(u[8:], rand.Uint64()&^(0b11<<62)|0b10<<62)
	dst = append(hex.AppendEncode(dst, u[:4]), '-')
	dst = append(hex.AppendEncode(dst, u[4:6]), '-')
	dst = append(hex.AppendEncode(dst, u[6:8]), '-')
	dst = append(hex.AppendEncode(dst, u[8:10]), '-')
	return hex.AppendEncode(dst, u[10:])
}
