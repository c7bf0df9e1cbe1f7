package config

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"adbuffer/internal/ssp/dial"
)

func (w *warner) ssp(cfg *Config, ssp *SSP, path string) {
	w.loops(cfg, ssp, path)
	w.sources(ssp, path)
	if limit, all := ssp.MaxInFlight, cfg.Server.MaxInFlight; limit > all {
		w.add(join(path, "max_in_flight"), "%d is above server.max_in_flight, %d, and never reached", limit, all)
	}
	pool, deadline := &ssp.Pool, &cfg.Deadline
	poolPath := join(path, "pool")
	if pool.MaxPending != 0 && pool.PendingTimeout >= deadline.Default {
		w.add(join(poolPath, "pending_timeout"), "%s is not below deadline.default, %s; most waiting requests will fail with outcome deadline, not pending_timeout",
			formatDuration(pool.PendingTimeout), formatDuration(deadline.Default))
	}
	if pool.MaxPending == 0 && cfg.Server.Fairness.Key != "" {
		w.add(join(poolPath, "max_pending"), "is 0, so there is no queue in which server.fairness.key could share the places")
	}
	if pool.IdleTimeout >= commonServerIdle {
		w.add(join(poolPath, "idle_timeout"), "%s is not below the %s after which common servers close idle connections; requests on stale connections will cost retries",
			formatDuration(pool.IdleTimeout), formatDuration(commonServerIdle))
	}
	if pool.MaxAge < pool.IdleTimeout {
		w.add(join(poolPath, "max_age"), "%s is below idle_timeout, %s, which then has no effect",
			formatDuration(pool.MaxAge), formatDuration(pool.IdleTimeout))
	}
	if n := pool.MaxHTTP2Conns; pool.MinIdle > n && (ssp.Protocol == dial.HTTP2 || ssp.Protocol == dial.H2C) {
		w.add(join(poolPath, "min_idle"), "%d is above max_http2_conns, %d, and never reached", pool.MinIdle, n)
	}
	if n := pool.MaxConns; pool.Auto.Enabled && pool.Auto.MinConns > n && ssp.Protocol == dial.HTTP1 {
		w.add(join(poolPath, "auto.min_conns"), "%d is not below max_conns, %d, so the pool never sizes itself", pool.Auto.MinConns, n)
	}
	if ssp.speaksHTTP2() {
		if places := pool.MaxHTTP2Conns * pool.MaxStreamsPerConn; places < pool.MaxConns {
			w.add(join(poolPath, "max_http2_conns"), "%d connections of %d streams are %d places over HTTP/2, fewer than max_conns, %d, over HTTP/1",
				pool.MaxHTTP2Conns, pool.MaxStreamsPerConn, places, pool.MaxConns)
		}
	}
	switch n := ssp.preferredEndpoints(); {
	case n > pool.MaxConns:
		w.add(join(poolPath, "max_conns"), "%d connections are too few for the %d endpoints with the lowest priority number; those without a connection get no requests", pool.MaxConns, n)
	case ssp.speaksHTTP2() && n > pool.MaxHTTP2Conns:
		w.add(join(poolPath, "max_http2_conns"), "%d connections over HTTP/2 are too few for the %d endpoints with the lowest priority number; those without a connection get no requests",
			pool.MaxHTTP2Conns, n)
	}
	switch limit := ssp.BufferedBytesLimit(w.machine.maxBufferedBytes(cfg).Value); {
	case limit < ssp.MaxResponseBytes:
		w.add(join(path, "max_buffered_bytes"), "%d bytes are in force, less than max_response_bytes, %d; the largest response would be refused as overloaded", limit, ssp.MaxResponseBytes)
	case limit-limit/4 < cfg.Server.MaxBodyBytes:
		w.add(join(path, "max_buffered_bytes"), "%d bytes are in force, and three quarters of them are less than server.max_body_bytes, %d; the largest request would be refused as overloaded", limit, cfg.Server.MaxBodyBytes)
	case limit > w.machine.maxBufferedBytes(cfg).Value:
		w.add(join(path, "max_buffered_bytes"), "%d bytes are above server.max_buffered_bytes, %d, and never reached", limit, w.machine.maxBufferedBytes(cfg).Value)
	}
	w.aboveMax(join(path, "timeouts.request"), ssp.Timeouts.Request, deadline)
	if dial := ssp.Timeouts.Connect; dial >= deadline.Default {
		w.add(join(path, "timeouts.connect"), "%s is not below deadline.default, %s; a request that waits for a dial may have no time left for the response",
			formatDuration(dial), formatDuration(deadline.Default))
	}
	if m := ssp.TmaxMargin; m > 0 {
		setsTmax := slices.ContainsFunc(ssp.Set, func(s Set) bool { return s.Path == "tmax" })
		if !setsTmax && slices.ContainsFunc(ssp.Remove, func(r Removal) bool { return r.Path == "tmax" && len(r.When) == 0 }) {
			w.add(join(path, "tmax_margin"), "has no effect, since remove takes tmax out of the body")
		} else if usual := deadline.Default - deadline.Reserve; m >= usual {
			w.add(join(path, "tmax_margin"), "%s is not below deadline.default less deadline.reserve, %s; a request with that deadline would tell the SSP a tmax of 1", formatDuration(m), formatDuration(usual))
		}
	}
	w.qps(&cfg.Fleet, &ssp.QPS, join(path, "qps"))
	w.shape(cfg, ssp, join(path, "qps"))
	switch t := &ssp.TLS.ClientTLS; {
	case ssp.Parsed.Scheme == "http" && *t != ClientTLS{}:
		w.add(join(path, "tls"), "is not used: the endpoints are http, so requests and responses cross the network in cleartext")
	case ssp.Parsed.Scheme == "https" && t.InsecureSkipVerify:
		w.add(join(path, "tls.insecure_skip_verify"), "a machine between adbuffer and the SSP can read and change requests and responses")
	}
	if ssp.Parsed.Scheme == "https" {
		w.certificate(join(path, "tls.cert_file"), ssp.TLS.CertFile, ssp.TLS.KeyFile, "SSPs that ask for it")
	}
	if ssp.Retry.Max == 0 && ssp.Hedge.Enabled {
		w.add(join(path, "hedge.enabled"), "hedged requests are sent although retry.max is 0")
	}
	if !slices.ContainsFunc(cfg.Routes, func(r Route) bool { return r.uses(ssp.Name) }) {
		w.add(path, "no route uses %s", ssp.Name)
	}
}

// goodShapedBurst is the burst from which requests that a shaper chose rarely find no token because several arrive at once.
const goodShapedBurst = 10

// shape warns about the choice of the requests that an SSP's limit drops.
func (w *warner) shape(cfg *Config, s *SSP, path string) {
	o, shape := s.QPS.Options(), &s.QPS.Shape
	if !o.Shaped {
		v := reflect.ValueOf(*shape)
		for _, k := range keysOf(v.Type()) {
			if !isList(k.typ) && v.FieldByIndex(k.index).Interface() != defaultOf(k) {
				w.add(join(path, "shape."+k.name), "has no effect, since keys is empty")
			}
		}
		return
	}
	keys := join(path, "shape.keys")
	if s.QPS.Limit == 0 && shape.MaxLoss == 0 && !shape.DryRun {
		w.add(keys, "drop no request, since limit and max_loss are 0")
	}
	if s.NoBidBody == "none" {
		w.add(keys, "count each response with a body as a fill, since no_bid_body is none; set it to the format of the SSP's no-bids, unless they are always empty")
	}
	dryRun := s.QPS.DryRun || shape.DryRun
	if burst := o.BurstInForce(); s.QPS.Limit > 0 && !dryRun && burst < goodShapedBurst {
		w.add(join(path, "burst"), "%d is below %d; when several requests that shape chose arrive at once, some find no token and end as qps_limit", burst, goodShapedBurst)
	}
	if len(cfg.Server.TrustedProxies) > 0 {
		return
	}
	for i, key := range shape.Keys {
		if !strings.HasPrefix(key, "openrtb:") {
			w.add(at(keys, i), "clients can make up values of %s, since server.trusted_proxies is empty; made-up values take room from those that adbuffer has learned", key)
		}
	}
}

// sources warns of source addresses from which no connection is possible.
func (w *warner) sources(ssp *SSP, path string) {
	all := ssp.SourceAddresses
	if len(all) == 0 {
		return
	}
	for i, e := range ssp.Parsed.All {
		to, err := netip.ParseAddr(e.Host)
		if err == nil && !slices.ContainsFunc(all, func(a netip.Addr) bool { return a.Is4() == to.Unmap().Is4() }) {
			w.add(at(join(path, "endpoints"), i), "cannot be reached, since no source address matches its IP family")
		}
	}
	for i, a := range all {
		if len(w.machine.addrs) > 0 && !w.machine.isLocal(a) {
			w.add(at(join(path, "source_addresses"), i), "no interface of this machine has %s; every dial from it would fail", a)
		}
	}
}

// preferredEndpoints returns how many endpoints have the lowest priority number.
func (s *SSP) preferredEndpoints() (n int) {
	lowest := slices.MinFunc(s.Endpoints, func(a, b Endpoint) int { return a.Priority - b.Priority }).Priority
	for _, e := range s.Endpoints {
		if e.Priority == lowest {
			n++
		}
	}
	return n
}

// speaksHTTP2 reports whether connections to the SSP may use HTTP/2.
func (s *SSP) speaksHTTP2() bool {
	switch s.Protocol {
	case dial.HTTP2, dial.H2C:
		return true
	case dial.Auto:
		return strings.HasPrefix(strings.ToLower(s.Endpoints[0].URL), "https:")
	}
	return false
}
