// Package header decides which header fields cross the proxy: fields of requests, fields of responses, and trailers of
// responses. It also determines the client's identity, and writes the fields that tell an SSP that identity.
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
//   - Identity fields (X-Forwarded-*, Forwarded, X-Real-IP, True-Client-IP and similar fields, X-Device-*) are forwarded
//     only if the peer is trusted and the policy's IdentityMode includes them. AppendRequest does not copy
//     X-Forwarded-For, X-Device-IP and X-Device-User-Agent: if the IdentityMode includes them, it writes them from the
//     Identity, for every peer.
//   - All other fields are ordinary. They cross in the order and spelling in which they came.
//
// Names are classified with '_' read as '-', because many servers (CGI, WSGI, Rack) cannot distinguish
// X_Forwarded_For from X-Forwarded-For. If a name is special only with '_' read as '-', adbuffer neither reads nor
// forwards the field. An exception: a guarded field is forwarded if PolicyOptions.Pass has its name with the '_'; upper and
// lower case are equal.
//
// AppendResponse and AppendTrailers say which fields of a response are forwarded.
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
