package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// validate reports every rule that the document breaks. It also reads and checks the files that the
// document names.
func validate(doc *document, r *report) {
	cfg := &doc.Config
	r.checkSection(reflect.ValueOf(doc).Elem(), "")
	checkServer(cfg, r)
	checkServerTLS(cfg, r)
	checkFleet(cfg, r)
	doc.SSPDefaults.TLS.check("ssp_defaults.tls", r)
	for i := range cfg.SSPs {
		checkSSP(&cfg.SSPs[i], &cfg.Deadline, at("ssps", i), r)
	}
	checkRoutes(cfg, r)
}

// formatDuration writes 10m, where Duration.String writes 10m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func checkServer(cfg *Config, r *report) {
	s := &cfg.Server
	if overlap(s.Listen, cfg.Admin.Listen) {
		r.add("admin.listen", cfg.Admin.Listen, fmt.Sprintf("must have another port than server.listen, %s: both would listen on the same address", s.Listen), "server.listen")
	}
	for i, prefix := range s.TrustedProxies {
		p := at("server.trusted_proxies", i)
		if prefix.Addr().Is4In6() {
			r.add(p, prefix, "must be written as IPv4, because adbuffer treats the addresses of such peers as IPv4")
		} else if prefix != prefix.Masked() {
			r.add(p, prefix, fmt.Sprintf("has bits set beyond its length; write %s", prefix.Masked()))
		}
	}
	if id := s.RequestID.Header; id != "" && strings.EqualFold(id, cfg.Deadline.Header) {
		r.add("server.request_id.header", id, "must differ from deadline.header", "deadline.header")
	}
	d := &cfg.Deadline
	if least := d.Reserve + max(d.MinBudget, time.Millisecond); d.Max < least {
		r.add("deadline.max", formatDuration(d.Max), fmt.Sprintf("must be at least %s, since deadline.reserve is %s and deadline.min_budget is %s; no request would be sent",
			formatDuration(least), formatDuration(d.Reserve), formatDuration(d.MinBudget)), "deadline.reserve", "deadline.min_budget")
	}
	if cfg.Admin.TokenFile != "" {
		cfg.Admin.Token = readToken(cfg.Admin.TokenFile, "admin.token_file", r)
	}
}
