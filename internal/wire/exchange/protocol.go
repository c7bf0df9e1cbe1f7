package exchange

// Protocol is the protocol of a connection. It is the metric label `protocol`.
type Protocol uint8

// Unknown is the protocol of a connection before ALPN has chosen one.
const (
	Unknown Protocol = iota
	HTTP1
	HTTP1Pipelined
	HTTP2

	// Protocols is the number of protocols, for arrays indexed by Protocol.
	Protocols
)

var protocolNames = [Protocols]string{Unknown: "unknown", HTTP1: "http1", HTTP1Pipelined: "http1-pipelined", HTTP2: "http2"}

// String returns the name that metrics use.
func (p Protocol) String() string { return protocolNames[p] }
