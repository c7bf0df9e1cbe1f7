package ssp

import (
	"bytes"

	"adbuffer/internal/httpsyntax"
	"adbuffer/internal/upstream"
)

// NoBidBody is how a body distinguishes a no-bid from a fill.
type NoBidBody uint8

// The values of `no_bid_body`.
const (
	NoBidNone    NoBidBody = iota // any body is a fill
	NoBidVAST                     // a document without <Ad is no bid
	NoBidOpenRTB                  // a document without a bid is no bid
)

// maxScan bounds how large a body is searched for an ad. A larger one counts as an ad.
const maxScan = 64 << 10

// classify returns the outcome of a response.
func (s *SSP) classify(r *Request, a *upstream.Response) upstream.Outcome {
	switch {
	case a.Status >= 500:
		return upstream.ServerError
	case a.Status >= 400:
		return upstream.ClientError
	case a.Status >= 300:
		return upstream.Redirect
	case a.Status == 204:
		return upstream.NoBid
	case r.Method == upstream.HEAD:
		return upstream.Fill
	case len(a.Body) == 0:
		return upstream.NoBid
	case s.opts.NoBidBody == NoBidNone || s.opts.NoBidBody.filled(a):
		return upstream.Fill
	default:
		return upstream.NoBid
	}
}

// filled reports whether the body, which may be compressed, holds an ad.
func (n NoBidBody) filled(a *upstream.Response) bool {
	coding, fields := identity, 0
	for name, value := range httpsyntax.Fields(a.Fields) {
		if httpsyntax.EqualFold(name, "Content-Encoding") {
			coding = value
			fields++
		}
	}
	switch {
	case fields > 1:
		return true // several content codings
	case httpsyntax.EqualFold(coding, "identity"):
		return n.hasAd(a.Body)
	}
	return n.hasCodedAd(coding, a.Body)
}

var identity = []byte("identity")

var (
	vastAd     = []byte("<Ad")
	openRTBBid = []byte(`"bid"`)
	// lowerEscape begins the escapes of a to o.
	lowerEscape = []byte(`\u006`)
)

// hasAd reports whether body holds an ad. If a search cannot tell, it returns true.
func (n NoBidBody) hasAd(body []byte) bool {
	if len(body) > maxScan || isWide(body) {
		return true
	}
	switch n {
	case NoBidVAST:
		for {
			i := bytes.Index(body, vastAd)
			if i < 0 {
				return false
			}
			body = body[i+len(vastAd):]
			// <AdSystem> or <AdTitle> stands only within an <Ad>, but a
			// malformed document should not pass for one.
			if len(body) > 0 && (body[0] == '>' || body[0] == '/' || body[0] <= ' ') {
				return true
			}
		}
	case NoBidOpenRTB:
		return hasBid(body)
	default:
		return true
	}
}

// isWide reports whether body is UTF-16 or UTF-32, as XML may be. It is if it has a byte order
// mark, or a zero byte beside its first character.
func isWide(body []byte) bool {
	if len(body) < 2 {
		return false
	}
	a, b := body[0], body[1]
	return a == 0 || b == 0 || a == 0xfe && b == 0xff || a == 0xff && b == 0xfe
}

// hasBid looks for a "bid" key whose value is an array that is not empty. It finds each one that a
// parser finds. If the key may be spelled with escapes (\u0062 is b), it returns true.
func hasBid(body []byte) bool {
	for from := body; ; {
		i := bytes.Index(from, openRTBBid)
		if i < 0 {
			return bytes.Contains(body, lowerEscape)
		}
		escaped := i > 0 && from[i-1] == '\\' // the quote is within a string
		from = from[i+len(openRTBBid):]
		if escaped {
			continue
		}
		rest := bytes.TrimLeft(from, " \t\r\n")
		if len(rest) == 0 || rest[0] != ':' {
			continue
		}
		rest = bytes.TrimLeft(rest[1:], " \t\r\n")
		if len(rest) == 0 || rest[0] != '[' {
			continue
		}
		rest = bytes.TrimLeft(rest[1:], " \t\r\n")
		if len(rest) > 0 && rest[0] != ']' {
			return true
		}
	}
}
