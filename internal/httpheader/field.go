// Package httpheader says which header fields cross the proxy, and identity: whose request it is and which
// fields tell an SSP so.
//
// It reads the raw header block of a request once, refuses what RFC 9112 forbids, and gives each field a kind.
// A Policy, one per SSP, then writes the fields that cross as a block of "Name: value\r\n" lines that HTTP/1
// sends as it is and HTTP/2 encodes line by line. Nothing here allocates for a well-formed request.
//
// What a request field's kind means for it:
//
//   - Hop-by-hop fields (Connection, Keep-Alive, Proxy-Connection, TE, Trailer, Transfer-Encoding, Upgrade,
//     HTTP2-Settings, Expect), Content-Length, Host, whatever a Connection field names, and X-Adbuffer-*
//     never cross.
//   - Guarded fields (Cookie, Authorization, Proxy-*, Proxy) cross where a policy passes them by name.
//   - Identity fields (X-Forwarded-*, Forwarded, X-Real-IP, True-Client-IP and their like, X-Device-*) cross
//     by the policy's IdentityMode, and only if the peer that sent them is trusted.
//   - The rest is ordinary and crosses in the order and spelling it came in.
//
// Kinds are found with '_' read as '-', because many servers (CGI, WSGI, Rack) cannot tell X_Forwarded_For
// from X-Forwarded-For. A field that is special only in that reading is never used, and never crosses unless
// it is a guarded one that a policy passes in exactly that spelling.
package httpheader

// Field is one header field of a request. Name and Value are slices of the scanned block: they live as long
// as the block does. Value has no blanks around it.
type Field struct {
	Name, Value []byte

	end      int // where the next line starts in the scanned block
	kind     kind
	verbatim bool // the line reads exactly "Name: value\r\n"
	named    bool // a Connection field names it
}

// kind is what a request does with a field.
type kind uint8

const (
	ordinary        kind = iota
	never                // hop-by-hop, framing, Host, X-Adbuffer-*, look-alikes
	guarded              // crosses if passed by name
	forwardedFor         // X-Forwarded-For: the list of addresses that we continue
	forwarded            // Forwarded, RFC 7239
	forwardedAddr        // X-Real-IP and its like: addresses and nothing else
	forwardedOther       // X-Forwarded-Proto, X-Forwarded-Host and the rest
	deviceIP             // X-Device-IP
	deviceUserAgent      // X-Device-User-Agent
	deviceOther          // X-Device-Referer and the rest
	kinds                // how many there are
)
