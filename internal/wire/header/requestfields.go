package header

import "adbuffer/internal/wire/syntax"

// maxFields is how many fields a request may have.
const maxFields = 128

// RequestFields holds the target and the fields of one request, checked and classified. It is reusable. No method may
// run at the same time as Scan, Take or Reset; between these calls any number of goroutines may read it.
//
// TimeoutName, IDName, HTTP10 and HTTP2 are set before Scan. Path and Query are results of SetTarget.
type RequestFields struct {
	// TimeoutName is the field in which clients send their deadline, `deadline.header`; "" = none.
	// Reset keeps it.
	TimeoutName string
	// IDName is the field in which peers send the request's id, `server.request_id.header`; "" =
	// none. CheckRequestID must allow it. Reset keeps it.
	IDName string
	// HTTP10 says that the request line had HTTP/1.0: Host is optional and Transfer-Encoding is
	// refused. Reset and Scan do not change it; the caller sets it for every request.
	HTTP10 bool
	// HTTP2 says that the request came over HTTP/2. The caller sets it like HTTP10.
	HTTP2 bool

	// Path and Query are the parts of the request target, raw and without the question mark. SetTarget
	// sets them, and Scan and Reset clear them.
	Path, Query []byte

	raw    []byte
	fields []Field

	host, contentType, contentEncoding, userAgent []byte // nil = no such field

	contentLength   int64 // -1 = no such field
	chunked         bool
	decoded         bool // DropContentEncoding was called
	hosts           int  // number of Host fields
	vias            int  // number of Via fields
	hasForwardedFor bool // the request has an X-Forwarded-For
	takesTrailers   bool // the request came over HTTP/2 and has TE: trailers
	hasDeviceFields bool // the request has an X-Device-IP or X-Device-User-Agent

	timeout, grpcTimeout, ssp, clientID     []byte
	timeouts, grpcTimeouts, ssps, clientIDs int // numbers of these fields

	id requestID

	options connectionOptions
}

// Reset removes the last request from f, so that f keeps none of its bytes in memory.
func (f *RequestFields) Reset() {
	clear(f.fields)
	f.resetResults(nil)
}

// resetResults removes the results of the last Scan.
func (f *RequestFields) resetResults(raw []byte) {
	f.Path, f.Query, f.raw = nil, nil, raw
	f.fields = f.fields[:0]
	f.host, f.contentType, f.contentEncoding, f.userAgent = nil, nil, nil, nil
	f.decoded = false
	f.contentLength, f.chunked, f.hosts, f.vias = -1, false, 0, 0
	f.hasForwardedFor, f.hasDeviceFields, f.takesTrailers = false, false, false
	f.timeout, f.ssp, f.clientID, f.timeouts, f.ssps, f.clientIDs = nil, nil, nil, 0, 0, 0
	f.grpcTimeout, f.grpcTimeouts = nil, 0
	f.id.n = 0
	f.options.reset()
}

// Fields returns all fields in their original order, including fields that are not forwarded.
func (f *RequestFields) Fields() []Field { return f.fields }

// Lookup returns the value of the first field called name, in any case. ok is false without such a
// field.
func (f *RequestFields) Lookup(name string) (value []byte, ok bool) {
	for i := range f.fields {
		if syntax.EqualFold(f.fields[i].Name, name) {
			return f.fields[i].Value, true
		}
	}
	return nil, false
}

// Host returns the host that the request is for, in any case, without its port and without the dot that ends an
// absolute DNS name: the target's, else that of the field Host, which may be empty. It is nil if an HTTP/1.0 request
// has neither a host in its target nor a field Host.
func (f *RequestFields) Host() []byte { return f.host }

// ContentType returns the value of the first Content-Type, or nil.
func (f *RequestFields) ContentType() []byte { return f.contentType }

// ContentEncoding returns the value of the first Content-Encoding, or nil.
func (f *RequestFields) ContentEncoding() []byte { return f.contentEncoding }

// Codings returns the number of fields Content-Encoding.
func (f *RequestFields) Codings() (n int) {
	for i := range f.fields {
		if syntax.EqualFold(f.fields[i].Name, "Content-Encoding") {
			n++
		}
	}
	return n
}

// DropContentEncoding keeps all fields Content-Encoding from crossing, since the body has been decoded.
func (f *RequestFields) DropContentEncoding() {
	f.decoded, f.contentEncoding = true, nil
	for i := range f.fields {
		if syntax.EqualFold(f.fields[i].Name, "Content-Encoding") {
			f.fields[i].withheld = true
		}
	}
}

// ContentLength returns the value of Content-Length, in bytes, or -1.
func (f *RequestFields) ContentLength() int64 { return f.contentLength }

// Chunked reports whether the body came with Transfer-Encoding: chunked.
func (f *RequestFields) Chunked() bool { return f.chunked }

// Persistent reports whether the client wants its connection to stay open: RFC 9112, section 9.3.
func (f *RequestFields) Persistent() bool {
	return !f.options.close && (!f.HTTP10 || f.options.keepAlive)
}

// TakesTrailers reports whether an HTTP/2 client wants the trailers of the response, like clients
// of gRPC.
func (f *RequestFields) TakesTrailers() bool { return f.takesTrailers }

// Timeout returns the value of the first field called TimeoutName, and the number of such fields.
func (f *RequestFields) Timeout() (value []byte, count int) { return f.timeout, f.timeouts }

// GRPCTimeout returns the value of the first Grpc-Timeout, and the number of such fields. For a request whose content
// type is not that of gRPC, it returns nil and 0. A gRPC call's Grpc-Timeout is not forwarded: adbuffer writes its own,
// with the remaining time, for the SSP.
func (f *RequestFields) GRPCTimeout() (value []byte, count int) { return f.grpcTimeout, f.grpcTimeouts }

// SSP returns the value of the first X-Adbuffer-Ssp, and the number of such fields.
func (f *RequestFields) SSP() (value []byte, count int) { return f.ssp, f.ssps }

// Size returns the length of the scanned block, in bytes.
func (f *RequestFields) Size() int { return len(f.raw) }

// CopyFrom makes f a copy of from, except for what SetTarget has set: Path and Query are nil, and Host is that of the
// field Host. The bytes are appended to mem, which CopyFrom returns, so the memory of from may be released. CopyFrom
// costs another scan.
func (f *RequestFields) CopyFrom(from *RequestFields, mem []byte) []byte {
	start := len(mem)
	mem = append(mem, from.raw...)
	f.TimeoutName, f.IDName, f.HTTP10, f.HTTP2 = from.TimeoutName, from.IDName, from.HTTP10, from.HTTP2
	if err := f.Scan(mem[start:len(mem):len(mem)]); err != nil {
		panic("BUG: a block that was scanned before is refused: " + err.Error())
	}
	f.id = from.id
	if from.decoded {
		f.DropContentEncoding()
	}
	return mem
}
