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
	w.begin(status, "application/json", []byte("proxy/"+o.String()))
	w.Body = append(text, '\n')
}

// writeNoAd writes the route's response for no ad, in place of a response from source that ended with o. nbr is the
// reason in a BidResponse.
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
		w.begin(statusOK, "application/json", source)
		w.Body = document
		return
	case r.route.NoAd != route.NoAdVAST:
		w.begin(statusNoContent, "", source)
		return
	}
	w.begin(statusOK, "application/xml; charset=utf-8", source)
	w.Body = []byte(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<VAST version="4.2"/>` + "\n")
}

// noBid returns a BidResponse without bids, or nil if the request has no id that can be read.
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

// writeHealth is readiness on the traffic port.
func (p *Proxy) writeHealth(w *response) {
	status, text := statusOK, "ready\n"
	if p.Draining() || !p.ready() {
		status, text = statusUnavailable, "not ready\n"
	}
	w.begin(status, "text/plain; charset=utf-8", nil)
	w.Body = []byte(text)
}
