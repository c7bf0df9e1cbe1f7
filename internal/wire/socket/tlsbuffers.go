package socket

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"unsafe"
)

// tlsBuffers are the offsets of crypto/tls's buffers in a tls.Conn. crypto/tls never frees them:
// after a handshake with a post-quantum key share they are 3.5 KB, half of an idle connection's
// memory. usable is false if this version of Go has other fields.
type tlsBuffers struct {
	rawInput, hand uintptr // bytes.Buffer: records, and messages of handshakes
	input          uintptr // bytes.Reader: decrypted bytes, a part of rawInput
	usable         bool
}

var ofTLS = findTLSBuffers(reflect.TypeFor[tls.Conn]())

func findTLSBuffers(conn reflect.Type) (b tlsBuffers) {
	rawInput, ok1 := conn.FieldByName("rawInput")
	hand, ok2 := conn.FieldByName("hand")
	input, ok3 := conn.FieldByName("input")
	buffer, reader := reflect.TypeFor[bytes.Buffer](), reflect.TypeFor[bytes.Reader]()
	if !ok1 || !ok2 || !ok3 || rawInput.Type != buffer || hand.Type != buffer || input.Type != reader {
		return tlsBuffers{}
	}
	return tlsBuffers{rawInput.Offset, hand.Offset, input.Offset, true}
}

// FreeTLS frees the buffers of c if they are empty. No other goroutine may use c during the call.
func FreeTLS(c *tls.Conn) {
	if !ofTLS.usable {
		return
	}
	at := unsafe.Pointer(c)
	rawInput, hand := (*bytes.Buffer)(unsafe.Add(at, ofTLS.rawInput)), (*bytes.Buffer)(unsafe.Add(at, ofTLS.hand))
	input := (*bytes.Reader)(unsafe.Add(at, ofTLS.input))
	if rawInput.Len() == 0 && hand.Len() == 0 && input.Len() == 0 {
		*rawInput, *hand, *input = bytes.Buffer{}, bytes.Buffer{}, bytes.Reader{}
	}
}
