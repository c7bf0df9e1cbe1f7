package sspsim

import (
	"bytes"
	"net/http"
	"strconv"
)

var poisonResponse = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " +
	strconv.Itoa(len(Poison)) + "\r\n\r\n" + Poison)

// framing is how the end of a response's body is found.
type framing uint8

const (
	byLength framing = iota
	byChunks
	byClose
	noContent // no body and no length
)

// framingOf decides the framing of the response. RFC 9112, section 6.3.
func (h *http1Conn) framingOf(f *fate, http10 bool) framing {
	switch {
	case !h.reply.hasBody:
		return noContent
	case f.malformation == LengthAndTE || f.malformation == BadChunk:
		return byChunks
	case f.traits[traitToEOF]:
		return byClose
	case (f.traits[traitChunked] || f.traits[traitTrailers]) && !http10 && !f.traits[traitHTTP10]:
		return byChunks
	}
	return byLength
}

// malformedHeads says which text of the message head each malformation replaces, and with what.
var malformedHeads = map[Malformation][2][]byte{
	ObsFold:       {crlfcrlf, []byte("\r\nX-Folded: one\r\n two\r\n\r\n")},
	BareLF:        {crlf, []byte("\n")},
	LengthAndTE:   {[]byte("Transfer-Encoding:"), []byte("Content-Length: 1\r\nTransfer-Encoding:")},
	TwoLengths:    {[]byte("Content-Length:"), []byte("Content-Length: 1\r\nContent-Length:")},
	BadChunk:      {crlfcrlf, []byte("\r\n\r\nzz\r\n")},
	BadStatusLine: {[]byte(" 200 OK\r\n"), []byte(" OK\r\n")},
	NulInValue:    {crlfcrlf, []byte("\r\nX-Nul: a\x00b\r\n\r\n")},
	SpaceInName:   {crlfcrlf, []byte("\r\nX-Space : a\r\n\r\n")},
}

var crlfcrlf = []byte("\r\n\r\n")

// writeReply writes the response with its framing. It returns false if the connection ends after
// it.
func (h *http1Conn) writeReply(p *script, f *fate) bool {
	r, http10 := &h.reply, h.in.Protocol == "HTTP/1.0"
	how := h.framingOf(f, http10)
	last := p.Connections.MaxRequests > 0 && h.served >= p.Connections.MaxRequests
	keep := !last && !h.in.close && !f.traits[traitHTTP10] && how != byClose
	if f.traits[traitInterim] && !http10 {
		h.put("HTTP/1.1 103 Early Hints\r\nLink: </sim.css>; rel=preload\r\n\r\n")
	}
	connection := ""
	switch {
	case h.in.close && !http10 || last && p.Connections.Announce:
		connection = "Connection: close\r\n"
	case http10 && keep:
		connection = "Connection: keep-alive\r\n"
	}
	h.makeHead(f, how, connection)
	if f.fault == faultCutHead {
		_, _ = h.out.Write(h.head[:len(h.head)/2])
		return false
	}
	_, _ = h.out.Write(h.head)
	if h.in.Method != http.MethodHead && how != noContent {
		body := r.body
		if f.fault == faultCutBody {
			body = body[:len(body)/2]
		}
		if !h.writeBody(p, f, body, how) || len(body) < len(r.body) {
			return false
		}
	}
	if f.fault == faultLeftover {
		_, _ = h.out.Write(poisonResponse)
	}
	h.ssp.countResponse(r.status)
	return keep
}

// makeHead makes the message head, with connection as one of its lines.
func (h *http1Conn) makeHead(f *fate, how framing, connection string) {
	r := &h.reply
	b := append(h.head[:0], "HTTP/1.1 "...)
	if f.traits[traitHTTP10] {
		b = append(b[:0], "HTTP/1.0 "...)
	}
	b = strconv.AppendInt(b, int64(r.status), 10)
	b = append(append(append(b, ' '), http.StatusText(r.status)...), crlf...)
	for _, f := range r.fields {
		b = append(append(append(append(b, f.Name...), ": "...), f.Value...), crlf...)
	}
	switch how {
	case byLength:
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(len(r.body)), 10), crlf...)
	case byChunks:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		if r.trailers {
			b = append(b, "Trailer: X-Sim-Trailer\r\n"...)
		}
	}
	h.head = append(append(b, connection...), crlf...)
	if change, ok := malformedHeads[f.malformation]; ok {
		h.head = bytes.ReplaceAll(h.head, change[0], change[1])
	}
}

// put adds a text to the gathered responses. A failure shows when they are flushed.
func (h *http1Conn) put(text string) { _, _ = h.out.WriteString(text) }

// writeBody writes the body, in two chunks or drop by drop if asked for. It returns false if the connection
// or the SSP has closed.
func (h *http1Conn) writeBody(p *script, f *fate, body []byte, how framing) bool {
	limit, drip := len(body), f.fault == faultDrip
	if how == byChunks {
		limit = (len(body) + 1) / 2
	}
	if drip {
		limit = p.dripBytes()
	}
	for len(body) > 0 {
		piece := body[:min(limit, len(body))]
		body = body[len(piece):]
		if how == byChunks {
			_, _ = h.out.Write(strconv.AppendInt(h.out.AvailableBuffer(), int64(len(piece)), 16))
			h.put("\r\n")
		}
		_, _ = h.out.Write(piece)
		if how == byChunks {
			h.put("\r\n")
		}
		if drip && (h.out.Flush() != nil || len(body) > 0 && !h.ssp.waitFor(p.dripPause(), nil)) {
			return false
		}
	}
	if how == byChunks && f.fault != faultCutBody {
		h.put("0\r\n")
		if h.reply.trailers {
			h.put("X-Sim-Trailer: done\r\n")
		}
		h.put("\r\n")
	}
	return true
}
