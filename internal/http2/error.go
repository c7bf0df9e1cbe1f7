package http2

import (
	"fmt"

	h2 "golang.org/x/net/http2"
)

// connError is a fault of the peer that ends the connection. RFC 9113, section
// 5.4.1.
type connError struct {
	code h2.ErrCode
	text string // which rule, for people; it goes to the peer too
}

func (e *connError) Error() string { return fmt.Sprintf("HTTP/2 %v: %s", e.code, e.text) }

func protocolError(text string) *connError    { return &connError{h2.ErrCodeProtocol, text} }
func frameSizeError(text string) *connError   { return &connError{h2.ErrCodeFrameSize, text} }
func flowError(text string) *connError        { return &connError{h2.ErrCodeFlowControl, text} }
func floodError(text string) *connError       { return &connError{h2.ErrCodeEnhanceYourCalm, text} }
func compressionError(text string) *connError { return &connError{h2.ErrCodeCompression, text} }
