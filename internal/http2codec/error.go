package http2codec

import (
	"fmt"

	h2 "golang.org/x/net/http2"
)

// Error is a violation by the peer that ends the connection. RFC 9113, section 5.4.1.
type Error struct {
	Code h2.ErrCode
	Text string // the violated rule, for people; it is also sent to the peer
}

func (e *Error) Error() string { return fmt.Sprintf("HTTP/2 %v: %s", e.Code, e.Text) }

func ProtocolError(text string) *Error    { return &Error{h2.ErrCodeProtocol, text} }
func FrameSizeError(text string) *Error   { return &Error{h2.ErrCodeFrameSize, text} }
func FlowError(text string) *Error        { return &Error{h2.ErrCodeFlowControl, text} }
func FloodError(text string) *Error       { return &Error{h2.ErrCodeEnhanceYourCalm, text} }
func compressionError(text string) *Error { return &Error{h2.ErrCodeCompression, text} }
