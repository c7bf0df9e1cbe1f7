package socket

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"unsafe"
)

// tlsBufferOffsets holds the offsets of the buffers in a tls.Conn. crypto/tls never frees these buffers: after a
// handshake with a post-quantum key share they take 3.5 KB, half of an idle connection's memory. usable is false if
// tls.Conn has other fields in this version of Go.
type tlsBufferOffsets struct {
	rawInput, hand uintptr // bytes.Buffer: records, and messages of handshakes
	input          uintptr // bytes.Reader: decrypted bytes, a part of rawInput
	usable         bool
}

var tlsLayout = findTLSBuffers(reflect.TypeFor[tls.Conn]())

func findTLSBuffers(conn reflect.Type) (b tlsBufferOffsets) {
	rawInput, ok1 := conn.FieldByName("rawInput")
	hand, ok2 := conn.FieldByName("hand")
	input, ok3 := conn.FieldByName("input")
	buffer, reader := reflect.TypeFor[bytes.Buffer](), reflect.TypeFor[bytes.Reader]()
	if !ok1 || !ok2 || !ok3 || rawInput.Type != buffer || hand.Type != buffer || input.Type != reader {
		return tlsBufferOffsets{}
	}
	return tlsBufferOffsets{rawInput.Offset, hand.Offset, input.Offset, true}
}

// FreeTLS frees the buffers of c if they are empty. No other goroutine may use c during the call.
func FreeTLS(c *tls.Conn) {
	if !tlsLayout.usable {
		return
	}
	at := unsafe.Pointer(c)
	rawInput, hand := (*bytes.Buffer)(unsafe.Add(at, tlsLayout.rawInput)), (*bytes.Buffer)(unsafe.Add(at, tlsLayout.hand))
	input := (*bytes.Reader)(unsafe.Add(at, tlsLayout.input))
	if rawInput.Len() == 0 && hand.Len() == 0 && input.Len() == 0 {
		*rawInput, *hand, *input = bytes.Buffer{}, bytes.Buffer{}, bytes.Reader{}
	}
}
