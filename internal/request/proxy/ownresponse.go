package proxy

import (
	"encoding/json"
	"strconv"

	"adbuffer/internal/request/route"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

// ownBody is the JSON of adbuffer's own error responses.
type ownBody struct {
	Error  string `json:"error"`
	SSP    string `json:"ssp,omitempty"`
	Detail string `json:"detail,omitempty"`
	ID     string `json:"id,omitempty"` // of the request
}

func (v *configVersion) writeOwn(w *response, o exchange.Outcome, status int, id []byte, sspName, detail string) {
	body := ownBody{Error: o.String(), ID: string(id)}
	if v.opts.ErrorDetail {
		if detail != "" {
			detail += "; "
		}
		body.SSP, body.Detail = sspName, detail+"see the runbook, entry "+o.String() // of deploy/prometheus/RUNBOOK.md
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic("BUG: strings make no JSON: " + err.Error())
	}
	w.writeOwnHead(status, "application/json", []byte("proxy/"+o.String()))
	w.Body = append(text, '\n')
}

// writeNoAd writes the route's no_ad response for a request that ended with o. source is the value of sourceField, and
// nbr the no-bid reason that a BidResponse states.
func (r *request) writeNoAd(w *response, source []byte, o exchange.Outcome, nbr int) {
	if o == exchange.NoBid {
		r.noAd(bySSP)
	} else {
		r.noAd(byProxy)
	}
	var document []byte
	if r.route.NoAd == route.NoAdOpenRTB {
		document = r.noBid(nbr)
	}
	switch {
	case document != nil:
		w.writeOwnHead(statusOK, "application/json", source)
		w.Body = document
		return
	case r.route.NoAd != route.NoAdVAST:
		w.writeOwnHead(statusNoContent, "", source)
		return
	}
	w.writeOwnHead(statusOK, "application/xml; charset=utf-8", source)
	w.Body = []byte(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<VAST version="4.2"/>` + "\n")
}

// noBid returns a BidResponse without bids, or nil if the request has no readable id.
func (r *request) noBid(nbr int) []byte {
	if route.UnreadableHeader(&r.fields) != openrtb.Readable {
		return nil
	}
	f := openrtb.AcquireFacts()
	defer f.Release()
	id := openrtb.ReadBidRequest(r.body, f).ID
	if id == nil {
		return nil
	}
	b := append([]byte(`{"id":`), id...)
	if nbr != exchange.NoNBR {
		b = strconv.AppendInt(append(b, `,"nbr":`...), int64(nbr), 10)
	}
	return append(b, "}\n"...)
}

// writeHealth writes the response to server.health_path: whether adbuffer is ready.
func (p *Proxy) writeHealth(w *response) {
	status, text := statusOK, "ready\n"
	if p.Draining() || !p.ready() {
		status, text = statusUnavailable, "not ready\n"
	}
	w.writeOwnHead(status, "text/plain; charset=utf-8", nil)
	w.Body = []byte(text)
}
