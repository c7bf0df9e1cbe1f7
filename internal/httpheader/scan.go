package httpheader

// DefaultMaxFields is the number of fields a request may have where RequestFields.MaxFields is 0.
const DefaultMaxFields = 128

// RequestFields holds the fields of one request, checked and classified. It is reusable and not safe for
// concurrent use while Scan or Reset runs; afterwards any number of goroutines may read it.
//
// The exported fields are settings for Scan.
type RequestFields struct {
	// MaxFields is how many fields a request may have; 0 = DefaultMaxFields. Kept by Reset.
	MaxFields int
	// TimeoutName is the field in which clients send their deadline; "" = none. Kept by Reset.
	TimeoutName string
	// HTTP10 says the request line said HTTP/1.0: Host is optional, Transfer-Encoding is refused. Cleared by Reset.
	HTTP10 bool

	raw    []byte
	fields []Field
}

// Reset forgets the last request and its bytes.
func (f *RequestFields) Reset() {}

// Scan reads raw, the header block exactly as it came on the wire after the request line, with its final
// empty line; empty stands for a block without fields. The error is an *Error. After an error the fields are
// undefined until the next Scan.
//
// The fields are slices of raw, which must not change while they are in use.
func (f *RequestFields) Scan(raw []byte) error { return nil }

// Fields returns all fields in the order they came in.
func (f *RequestFields) Fields() []Field { return f.fields }

// Lookup returns the value of the first field called name, in any case. ok is false if there is none.
func (f *RequestFields) Lookup(name string) (value []byte, ok bool) { return nil, false }

// Host returns the value of Host; nil if an HTTP/1.0 request has none.
func (f *RequestFields) Host() []byte { return nil }

// ContentType returns the value of the first Content-Type, nil if there is none.
func (f *RequestFields) ContentType() []byte { return nil }

// ContentEncoding returns the value of the first Content-Encoding, nil if there is none.
func (f *RequestFields) ContentEncoding() []byte { return nil }

// UserAgent returns the value of the first User-Agent, nil if there is none.
func (f *RequestFields) UserAgent() []byte { return nil }

// ContentLength returns Content-Length, or -1 if there is none.
func (f *RequestFields) ContentLength() int64 { return -1 }

// Chunked says that the body is chunked.
func (f *RequestFields) Chunked() bool { return false }

// Timeout returns the value of the first field called TimeoutName, and how many there are.
func (f *RequestFields) Timeout() (value []byte, count int) { return nil, 0 }

// SSP returns the value of the first X-Adbuffer-Ssp, and how many there are.
func (f *RequestFields) SSP() (value []byte, count int) { return nil, 0 }
