package config

import (
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"adbuffer/internal/capacity"
	"adbuffer/internal/httpheader"
	"adbuffer/internal/syntax"
)

const (
	maxText = 4096 // bytes
	maxName = 64   // bytes
)

// validate reports every rule that the document breaks, and reads the files that
// it names.
func validate(doc *document, r *report) {
	cfg := &doc.Config
	checkRanges(reflect.ValueOf(doc).Elem(), "", r)
	checkServer(cfg, r)
	checkServerTLS(cfg, r)
	checkTracing(&cfg.Tracing, r)
	checkFleet(cfg, r)
	checkHeaders(&doc.SSPDefaults.Headers, "ssp_defaults.headers", r)
	doc.SSPDefaults.TLS.check("ssp_defaults.tls", r)
	if len(cfg.SSPs) == 0 {
		r.addMissing("ssps", "must have at least one SSP")
	}
	names := map[string]string{}
	for i := range cfg.SSPs {
		path := at("ssps", i)
		checkName(cfg.SSPs[i].Name, path, names, r)
		checkSSP(&cfg.SSPs[i], path, r)
	}
	checkRoutes(cfg, r)
}

// checkRanges checks every value at and below section v against the tags of its field, and
// every text against the bounds of all texts.
func checkRanges(v reflect.Value, path string, r *report) {
	for _, k := range keysOf(v.Type()) {
		checkRange(v.FieldByIndex(k.index), k, join(path, k.name), r)
	}
}

func checkRange(v reflect.Value, k key, path string, r *report) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch {
	case isSection(v.Type()):
		checkRanges(v, path, r)
	case isList(v.Type()):
		for i := range v.Len() {
			checkRange(v.Index(i), key{typ: v.Type().Elem()}, at(path, i), r)
		}
	case v.Type() == durationType:
		d := time.Duration(v.Int())
		low, high := durationTag(k, "min"), durationTag(k, "max")
		if d < low || d > high {
			r.add(path, formatDuration(d), "must be from "+formatDuration(low)+" to "+formatDuration(high))
		}
	case v.Kind() == reflect.Int:
		low, high := numberTag(k, "min"), numberTag(k, "max")
		if n := v.Int(); n < int64(low) || n > int64(high) {
			r.add(path, n, fmt.Sprintf("must be from %.0f to %.0f", low, high))
		}
	case v.Kind() == reflect.Float64:
		low, high := numberTag(k, "min"), numberTag(k, "max")
		if f := v.Float(); !(f >= low && f <= high) { // false for NaN
			r.add(path, f, "must be from "+capacity.FormatNumber(low)+" to "+capacity.FormatNumber(high))
		}
	case v.Kind() == reflect.String:
		checkText(v, path, r)
	}
}

func checkText(v reflect.Value, path string, r *report) {
	text := v.String()
	if all := wordsOf(v.Type()); all != nil {
		if !slices.Contains(all, text) {
			r.add(path, text, "must be one of "+strings.Join(all, ", "))
		}
		return
	}
	if len(text) > maxText {
		r.add(path, text, fmt.Sprintf("must not be longer than %d bytes", maxText))
		return
	}
	if strings.Contains(text, Hidden) {
		r.add(path, text, "must not hold "+Hidden+", which replaces a secret where a configuration is shown; check --show-secrets shows the secret")
		return
	}
	for _, c := range text {
		if c < ' ' && c != '\t' || c == 0x7f || c == '\uFFFD' {
			r.add(path, text, "must not hold control characters or broken UTF-8")
			return
		}
	}
}

// numberTag and durationTag read the bounds of a key, which every number and duration has.
func numberTag(k key, name string) float64 {
	f, err := strconv.ParseFloat(k.tag.Get(name), 64)
	if err != nil {
		panic(fmt.Sprintf("BUG: tag %s of %s: %v", name, k.name, err))
	}
	return f
}

func durationTag(k key, name string) time.Duration {
	d, err := time.ParseDuration(k.tag.Get(name))
	if err != nil {
		panic(fmt.Sprintf("BUG: tag %s of %s: %v", name, k.name, err))
	}
	return d
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

// checkName reports a name that cannot be a value of a metric's label, or that is not
// unique. seen holds the path of each name so far.
func checkName(name, path string, seen map[string]string, r *report) {
	p := join(path, "name")
	if name == "" {
		r.addMissing(p, "must be set")
		return
	}
	if len(name) > maxName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		r.add(p, name, fmt.Sprintf("must be 1 to %d of a-z, 0-9, _ and -", maxName))
	}
	if first, ok := seen[name]; ok {
		r.add(p, name, "must be unique; "+first+" has it too")
		return
	}
	seen[name] = p
}

func checkServer(cfg *Config, r *report) {
	s := &cfg.Server
	checkListen(s.Listen, "server.listen", true, r)
	checkListen(cfg.Admin.Listen, "admin.listen", false, r)
	if _, port, err := net.SplitHostPort(string(s.Listen)); err == nil && port != "0" && s.Listen == cfg.Admin.Listen {
		r.add("admin.listen", cfg.Admin.Listen, "must differ from server.listen", "server.listen")
	}
	for i, prefix := range s.TrustedProxies {
		p := at("server.trusted_proxies", i)
		if prefix.Addr().Is4In6() {
			r.add(p, prefix, "must be written as IPv4, because adbuffer compares such peers as IPv4")
		} else if prefix != prefix.Masked() {
			r.add(p, prefix, fmt.Sprintf("has bits set beyond its length; write %s", prefix.Masked()))
		}
	}
	if s.HealthPath != "" {
		if rule := pathRule(s.HealthPath); rule != "" {
			r.add("server.health_path", s.HealthPath, rule)
		} else if strings.HasSuffix(s.HealthPath, "/*") {
			r.add("server.health_path", s.HealthPath, "must be one exact path")
		}
	}
	d := &cfg.Deadline
	checkRequestID(cfg, r)
	if d.Default > d.Max {
		r.add("deadline.default", formatDuration(d.Default),
			"must not be above deadline.max, "+formatDuration(d.Max), "deadline.max")
	}
	if d.Header != "" {
		if rule := headerNameRule(d.Header); rule != "" {
			r.add("deadline.header", d.Header, rule)
		}
	}
	if cfg.Admin.TokenFile != "" {
		cfg.Admin.Token = readToken(cfg.Admin.TokenFile, "admin.token_file", r)
	}
}

func checkRequestID(cfg *Config, r *report) {
	const path = "server.request_id.header"
	name := cfg.Server.RequestID.Header
	if name == "" {
		return
	}
	if rule := crossingRule(name); rule != "" {
		r.add(path, name, rule)
	} else if err := httpheader.CheckRequestID(name); err != nil {
		r.add(path, name, err.Error())
	} else if strings.EqualFold(name, cfg.Deadline.Header) {
		r.add(path, name, "must differ from deadline.header", "deadline.header")
	}
}

func checkListen(a Address, path string, unixToo bool, r *report) {
	rule := `must be host:port, for example "127.0.0.1:8080"`
	if unixToo {
		rule += ", or unix:/path of at most 107 bytes"
	}
	network, address := a.Split()
	if network == "unix" {
		// The kernel's sun_path has 108 bytes, the last of them zero.
		if !unixToo || !strings.HasPrefix(address, "/") || strings.HasSuffix(address, "/") || len(address) > 107 {
			r.add(path, a, rule)
		}
		return
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || !validPort(port) || host != "" && !syntax.IsHost(host) {
		r.add(path, a, rule)
	}
}

func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}
func checkTracing(t *Tracing, r *report) {
	if t.Endpoint == "" {
		return
	}
	u, err := url.Parse(t.Endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		r.add("tracing.endpoint", t.Endpoint, `must be an http or https URL, for example "http://127.0.0.1:4318/v1/traces"`)
	case u.User != nil:
		// Not shown: it holds a password.
		r.add("tracing.endpoint", u.Redacted(), "must not hold a user or a password")
	case u.Fragment != "":
		r.add("tracing.endpoint", t.Endpoint, "must not have a fragment")
	}
}
