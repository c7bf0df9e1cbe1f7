package proxy

import (
	"adbuffer/internal/request/route"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"
)

// The fields of the Fetch standard that let scripts of a page read a response.
const (
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
)

// preflightMaxAge is how many seconds browsers may keep the response to a preflight. Chromium keeps it for at most two
// hours.
const preflightMaxAge = "7200"

// addCORS adds the fields that let scripts read the response, as far as rt.CORS allows the request's origin, and
// reports whether it does. A response with an SSP's own Access-Control-Allow-Origin stays as it is.
func (r *request) addCORS(w *response, rt *route.Route) (allowed bool) {
	if rt == nil || len(rt.CORS.Origins) == 0 {
		return false
	}
	if _, fromSSP := syntax.FindField(w.Fields, allowOrigin); fromSSP {
		return false
	}
	if !rt.CORS.Credentials { // the SSP's field would be valid for the origin that adbuffer adds
		w.Fields = syntax.KeepFields(w.Fields, func(name []byte) bool { return !syntax.EqualFold(name, allowCredentials) })
	}
	if rt.CORS.AllowsAll() {
		w.addField(allowOrigin, []byte("*"))
		return true
	}
	w.addField("Vary", []byte("Origin"))
	origin, _ := r.fields.Lookup("Origin")
	if !rt.CORS.Allows(origin) {
		return false
	}
	w.addField(allowOrigin, origin)
	if _, fromSSP := syntax.FindField(w.Fields, allowCredentials); rt.CORS.Credentials && !fromSSP {
		w.addField(allowCredentials, []byte("true"))
	}
	return true
}

// preflight makes the response to an OPTIONS request for a route with CORS, with which a browser asks whether a
// script may send another request. It returns false for any other request. A preflight is no request for an ad, so it
// is counted apart from the outcomes, and not logged.
func (r *request) preflight(w *response) bool {
	rt := r.preflightRoute()
	if rt == nil {
		return false
	}
	r.stats(rt).preflights.Add(1)
	r.skipBody()
	w.writeOwnHead(statusNoContent, "", nil)
	if r.addCORS(w, rt) {
		methods, _ := rt.Allow(exchange.GET, nil)
		w.addField("Access-Control-Allow-Methods", []byte(methods))
		if names, ok := r.fields.Lookup("Access-Control-Request-Headers"); ok {
			w.addField("Access-Control-Allow-Headers", names)
		}
		w.addField("Access-Control-Max-Age", []byte(preflightMaxAge))
	}
	return true
}

// preflightRoute returns the route of an OPTIONS request that adbuffer responds to, or nil.
func (r *request) preflightRoute() *route.Route {
	if string(r.method) != "OPTIONS" {
		return nil
	}
	return r.table.FindCORS(&r.fields)
}
