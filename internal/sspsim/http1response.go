package sspsim

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
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
	headStart := len(h.out)
	h.statusLine(f, r.status)
	for _, f := range r.fields {
		h.put(f.Name, ": ", f.Value, "\r\n")
	}
	h.writeFraming(f, r, how)
	switch {
	case h.in.close && !http10 || last && p.Connections.Announce:
		h.put("Connection: close\r\n")
	case http10 && keep:
		h.put("Connection: keep-alive\r\n")
	}
	h.put(malformedFields[f.malformation], "\r\n")
	if f.malformation == BareLF {
		head := bytes.ReplaceAll(h.out[headStart:], crlf, []byte("\n"))
		h.out = append(h.out[:headStart], head...)
	}
	if f.fault == faultCutHead {
		h.out = h.out[:headStart+(len(h.out)-headStart)/2]
		return false
	}
	sent := 0
	if h.in.Method != http.MethodHead && how != noContent {
		n := r.body.len()
		if f.fault == faultCutBody {
			r.body.cut(n / 2)
		}
		sent = r.body.len()
		if !h.writeBody(p, f, r, how) || sent < n {
			return false
		}
	}
	if f.fault == faultLeftover {
		h.out = append(h.out, poisonResponse...)
	}
	h.ssp.countResponse(r.status, sent)
	return keep
}

func (h *http1Conn) statusLine(f *fate, status int) {
	switch {
	case f.malformation == BadStatusLine:
		h.put("HTTP/1.1 OK\r\n")
		return
	case f.traits[traitHTTP10]:
		h.put("HTTP/1.0 ")
	default:
		h.put("HTTP/1.1 ")
	}
	h.out = strconv.AppendInt(h.out, int64(status), 10)
	h.put(" ", http.StatusText(status), "\r\n")
}

// put adds texts to the gathered responses.
func (h *http1Conn) put(texts ...string) {
	for _, text := range texts {
		h.out = append(h.out, text...)
	}
}

func (h *http1Conn) writeFraming(f *fate, r *reply, how framing) {
	if how == byLength || f.malformation == LengthAndTE {
		h.writeLength(r.body.len())
	}
	if f.malformation == TwoLengths {
		h.writeLength(r.body.len() + 1)
	}
	if how == byChunks {
		h.put("Transfer-Encoding: chunked\r\n")
		if r.trailers {
			h.put("Trailer: X-Sim-Trailer\r\n")
		}
	}
}

func (h *http1Conn) writeLength(n int) {
	h.put("Content-Length: ")
	h.out = strconv.AppendInt(h.out, int64(n), 10)
	h.put("\r\n")
}

// malformedFields are the fields of the malformations that add one to the header.
var malformedFields = map[Malformation]string{
	ObsFold:     "X-Folded: one\r\n two\r\n",
	NulInValue:  "X-Nul: a\x00b\r\n",
	SpaceInName: "X-Space : a\r\n",
}

// writeBody writes the body piece by piece. It returns false if the connection or the SSP has
// closed.
func (h *http1Conn) writeBody(p *script, f *fate, r *reply, how framing) bool {
	if f.malformation == BadChunk {
		h.put("zz\r\n")
	}
	limit := fillerSize
	if how == byChunks {
		limit = min(limit, max(1, (r.body.len()+1)/2))
	}
	drip := f.fault == faultDrip
	if drip {
		limit = p.Faults.Drip.Bytes
	}
	cut := f.fault == faultCutBody
	for piece := r.body.next(limit); len(piece) > 0; piece = r.body.next(limit) {
		if how == byChunks {
			h.out = strconv.AppendInt(h.out, int64(len(piece)), 16)
			h.put("\r\n")
		}
		h.out = append(h.out, piece...)
		if how == byChunks {
			h.put("\r\n")
		}
		if (drip || len(h.out) >= flushAt) && !h.flush() {
			return false
		}
		if drip && r.body.len() > 0 && !h.ssp.waitFor(time.Duration(p.Faults.Drip.Pause), nil) {
			return false
		}
	}
	if how == byChunks && !cut {
		h.put("0\r\n")
		if r.trailers {
			h.put("X-Sim-Trailer: done\r\n")
		}
		h.put("\r\n")
	}
	return true
}
