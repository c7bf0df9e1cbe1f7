package http2

import (
	"fmt"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// maxInterim is how many 1xx responses may precede the final one.
const maxInterim = 16

// onBlockLocked handles the decoded header block of stream f.ID: the header of a final or 1xx
// response, or trailers. last reports END_STREAM.
func (c *Conn) onBlockLocked(f http2codec.Frame, last bool) *http2codec.Error {
	b := &c.in.block
	c.resets.onResponse()
	s := c.streams.get(f.ID)
	if s == nil {
		return c.onClosedStreamLocked(f)
	}
	c.sendBuffer.prove(s.spent)
	switch {
	case b.TooLarge:
		c.resetLocked(s, h2.ErrCodeCancel, exchange.HeaderTooLarge(c.opts.MaxResponseHeaderBytes))
	case b.TooMany || s.fields+b.Regular > exchange.MaxResponseFields:
		c.resetLocked(s, h2.ErrCodeCancel, exchange.TooManyFields())
	case b.Malformed != "":
		c.malformedLocked(s, b.Malformed, b.OfHTTP2)
	case s.gotHeader:
		c.onTrailersLocked(s, b, last)
	case b.Status == 0:
		c.malformedLocked(s, "no :status", true)
	case b.Status < 200:
		c.onInterimLocked(s, b, last)
	default:
		c.onHeaderLocked(s, b, last)
	}
	return nil
}

// malformedLocked fails an exchange whose response violates a rule. RFC 9113, section 8.1.1.
// ofHTTP2 says that the rule is one of HTTP/2, so the request may succeed over HTTP/1.
func (c *Conn) malformedLocked(s *stream, rule string, ofHTTP2 bool) {
	c.resetLocked(s, h2.ErrCodeProtocol, badResponse("malformed HTTP/2 response: "+rule, ofHTTP2))
}

func (c *Conn) onInterimLocked(s *stream, b *http2codec.ResponseBlock, last bool) {
	s.interim++
	switch {
	case b.Status == 101:
		c.malformedLocked(s, "101, which HTTP/2 does not have", true) // RFC 9113, section 8.6
	case last:
		c.malformedLocked(s, "it ends with a 1xx response", true)
	case s.interim > maxInterim:
		c.resetLocked(s, h2.ErrCodeEnhanceYourCalm, badResponse(fmt.Sprintf("more than %d 1xx responses", maxInterim), false))
	}
}

// onHeaderLocked handles the header of the final response.
func (c *Conn) onHeaderLocked(s *stream, b *http2codec.ResponseBlock, last bool) {
	ex := s.ex
	s.gotHeader, s.fields = true, b.Regular
	s.noBody = ex.Request.Method == exchange.HEAD || b.Status == 204 || b.Status == 304
	ex.Times.FirstByte = c.in.Clock()
	ex.Response.Status = b.Status
	if b.Status != 204 { // RFC 9110, section 8.6
		ex.Response.ContentLength = b.Length
	}
	ex.Response.Fields = append(ex.Response.Fields[:0], b.Fields...)
	switch {
	case b.Status == 421: // RFC 9113, section 9.1.2 and RFC 9110, section 15.5.20
		c.resetLocked(s, h2.ErrCodeCancel, errMisdirected)
	case !s.noBody && b.Length > c.opts.MaxResponseBytes:
		c.resetLocked(s, h2.ErrCodeCancel, exchange.BodyTooLarge(c.opts.MaxResponseBytes))
	case last:
		c.responseDoneLocked(s)
	}
}

// onTrailersLocked handles the trailers. RFC 9113, section 8.1.
func (c *Conn) onTrailersLocked(s *stream, b *http2codec.ResponseBlock, last bool) {
	switch {
	case b.Status != 0:
		c.malformedLocked(s, "a pseudo-field among the trailers", true)
	case !last:
		c.malformedLocked(s, "a second header behind the final one", true)
	default:
		s.ex.Response.Trailers = append(s.ex.Response.Trailers[:0], b.Fields...)
		c.responseDoneLocked(s)
	}
}

// responseDoneLocked completes an exchange whose response is complete.
func (c *Conn) responseDoneLocked(s *stream) {
	response := &s.ex.Response
	if !s.noBody && response.ContentLength >= 0 && response.ContentLength != s.received {
		c.malformedLocked(s, "the body is not as long as its content-length", false)
		return
	}
	s.ex.Times.Done = c.in.Clock()
	c.streams.slot(s.id).completed = s.id
	if !s.sentEnd {
		// The peer does not need the remaining request: RFC 9113, section 8.1.
		c.out.Frames = http2codec.AppendReset(c.out.Frames, s.id, h2.ErrCodeNo)
	}
	c.flood.Earn()
	c.completeLocked(s, nil)
}
