// Package header decides which header fields cross the proxy. It also determines the client's identity, and writes
// the fields that tell an SSP that identity.
//
// It scans the raw header block of a request once, refuses what RFC 9112 forbids, and gives each
// field a kind (nameID). A Policy, one per SSP, then writes the fields that cross as a block of "Name:
// value\r\n" lines. HTTP/1 sends the block unchanged, and HTTP/2 encodes it line by line. Nothing
// here allocates for a well-formed request.
//
// The kinds of request fields:
//
//   - Hop-by-hop fields (Connection, Keep-Alive, Proxy-Connection, TE, Trailer,
//     Transfer-Encoding, Upgrade, HTTP2-Settings, Expect), Content-Length, Host, all fields that a
//     Connection field names, and X-Adbuffer-* never cross.
//   - Guarded fields (Cookie, Authorization, Proxy-*, Proxy) cross if a policy passes them by
//     name.
//   - Identity fields (X-Forwarded-*, Forwarded, X-Real-IP, True-Client-IP and similar fields,
//     X-Device-*) cross by the policy's IdentityMode, and only from a trusted peer.
//   - All other fields are ordinary. They cross in the order and spelling in which they came.
//
// Names are classified with '_' read as '-', because many servers (CGI, WSGI, Rack) cannot distinguish
// X_Forwarded_For from X-Forwarded-For. A field that belongs to a special kind only because of that is never used. It
// never crosses, except for a guarded field that a policy passes in exactly that spelling.
package header

// Field is one header field of a request. Name and Value are slices of the scanned block, and valid
// as long as the block. Value has no blanks around it.
type Field struct {
	Name, Value []byte

	end      int // where the next line starts in the scanned block
	id       nameID
	verbatim bool // the line reads exactly "Name: value\r\n"
	withheld bool // never crosses: a Connection field names it, DropContentEncoding has dropped it, or it is the Grpc-Timeout of a gRPC request
}
