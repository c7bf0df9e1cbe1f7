package scenario

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// checker collects the violations of rules.
type checker []error

// faultIf adds an error about the value at path if wrong is true.
func (c *checker) faultIf(wrong bool, path, format string, args ...any) {
	if wrong {
		*c = append(*c, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
	}
}

func (c *checker) within(path string, v, low, high int) {
	c.faultIf(v < low || v > high, path, "%d: must be %d to %d", v, low, high)
}

func oneOf[T ~string](c *checker, path string, v T, known ...T) {
	c.faultIf(!slices.Contains(known, v), path, "%q: must be one of %q", v, known)
}

func (s *Scenario) check() error {
	c := new(checker)
	for i := range s.SSPs {
		ssp, path := &s.SSPs[i], fmt.Sprintf("ssps[%d]", i)
		c.faultIf(ssp.Name == "", path+".name", "is missing")
		c.faultIf(s.ssp(ssp.Name) != ssp, path+".name", "%q: another SSP has this name", ssp.Name)
		oneOf(c, path+".protocol", ssp.Protocol, sspsim.HTTP1, sspsim.H2C, sspsim.TLSAuto, sspsim.TLSHTTP2,
			sspsim.TLSHTTP1, sspsim.TLSWithout)
	}
	c.target(s)
	c.load(&s.Load)
	for i := range s.Requests {
		c.request(fmt.Sprintf("requests[%d]", i), &s.Requests[i])
	}
	for i, status := range s.Expect.Status {
		c.within(fmt.Sprintf("expect.status[%d]", i), status, 200, 599)
	}
	if e := s.Expect.Shape; e != nil {
		c.faultIf(s.ssp(e.SSP) == nil || len(s.ssp(e.SSP).Behaviour.Response.FillBy) == 0, "expect.shape.ssp", "%q: must be an SSP with response.fill_by", e.SSP)
		c.faultIf(s.Adbuffer.Config == "" || slices.ContainsFunc(s.Requests, func(r load.Template) bool { return len(r.Segments) == 0 }),
			"expect.shape", "needs adbuffer.config, and segments of all requests")
	}
	for i, change := range s.Changes {
		path := fmt.Sprintf("changes[%d]", i)
		c.faultIf(s.ssp(change.SSP) == nil, path+".ssp", "%q: no SSP of this name", change.SSP)
		c.faultIf(change.At < 0, path+".at", "%v: must not be negative", change.At)
		c.faultIf(change.Behaviour.JSON == nil, path+".behaviour", "is missing")
	}
	return errors.Join(*c...)
}

// ssp returns the SSP with this name, or nil.
func (s *Scenario) ssp(name string) *SSP {
	if i := slices.IndexFunc(s.SSPs, func(ssp SSP) bool { return ssp.Name == name }); i >= 0 {
		return &s.SSPs[i]
	}
	return nil
}

func (c *checker) target(s *Scenario) {
	t := s.Target
	targets := slices.DeleteFunc([]string{t.URL, t.SSP, s.Adbuffer.Config}, func(v string) bool { return v == "" })
	c.faultIf(len(targets) != 1, "target", "exactly one of target.url (a running server), target.ssp (a simulated one) and "+
		"adbuffer.config (adbuffer in front of them) must be set, but %d are", len(targets))
	u, err := url.Parse(t.URL)
	c.faultIf(t.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil || u.Fragment != ""), "target.url",
		"%q: must be http://host:port or https://host:port; paths are those of requests", t.URL)
	c.faultIf(t.PID < 0 || t.PID != 0 && t.URL == "", "target.pid", "%d: must be a process ID, and needs target.url", t.PID)
	c.faultIf(t.SSP != "" && s.ssp(t.SSP) == nil, "target.ssp", "%q: no SSP of this name", t.SSP)
	_, err = (rig.Config{}).Parse(s.Adbuffer.Config)
	c.faultIf(err != nil, "adbuffer.config", "%v", err)
	https := strings.HasPrefix(t.URL, "https:")
	if ssp := s.ssp(t.SSP); ssp != nil {
		https = strings.HasPrefix(string(ssp.Protocol), "tls")
	}
	c.faultIf(s.Load.Protocol == load.HTTP2 && !https, "load.protocol", "http2 needs a target with TLS")
	c.faultIf(s.Load.Protocol == load.Pipelined && https, "load.protocol", "http1-pipelined needs a target without TLS")
}

func (c *checker) load(l *Load) {
	oneOf(c, "load.mode", l.Mode, "open", "closed")
	oneOf(c, "load.arrivals", l.Arrivals, "constant", "poisson")
	oneOf(c, "load.protocol", l.Protocol, load.KeepAlive, load.Close, load.Pipelined, load.HTTP2)
	c.within("load.depth", l.Depth, 1, 10000)
	c.within("load.connections", l.Connections, 1, 60000)
	c.within("load.threads", l.Threads, 1, min(64, l.Connections))
	c.faultIf(l.Timeout < time.Millisecond || l.Timeout > 10*time.Minute, "load.timeout", "%v: must be 1ms to 10m", l.Timeout)
	c.faultIf(l.Requests < 0 || l.Requests > 0 && l.Mode == "open", "load.requests",
		"%d: must not be negative, and must be 0 unless load.mode is closed", l.Requests)
	recorded := func(p Phase) bool { return p.Record == nil || *p.Record }
	c.faultIf(!slices.ContainsFunc(l.Phases, recorded), "load.phases", "at least one must be recorded")
	for i := range l.Phases {
		c.phase(fmt.Sprintf("load.phases[%d]", i), &l.Phases[i], l.Mode)
	}
}

func (c *checker) phase(path string, p *Phase, mode string) {
	c.faultIf(p.For < time.Millisecond || p.For > 24*time.Hour, path+".for", "%v: must be 1ms to 24h", p.For)
	rates := p.Rate != nil || p.From != nil || p.To != nil || p.Burst != (Burst{})
	c.faultIf(mode == "closed" && rates, path,
		"a closed loop has no rate and no burst: it sends the next request when a response arrives")
	c.faultIf(mode == "open" && !rates, path+".rate", "is missing")
	c.faultIf(p.Rate != nil && (p.From != nil || p.To != nil), path+".rate", "must not be set beside from and to")
	c.faultIf((p.From == nil) != (p.To == nil), path, "from and to must be set together")
	b := p.Burst
	c.faultIf(b != Burst{} && (b.Every < time.Millisecond || b.Requests < 1 || b.Requests > 1<<20), path,
		"burst.every must be at least 1ms, and burst.requests must be 1 to %d", 1<<20)
}

// maxSegments bounds the encoded requests of a template.
const maxSegments = 100_000

func (c *checker) request(path string, r *load.Template) {
	if _, known := rig.Presets()[r.Preset]; r.Preset != "" && !known {
		c.faultIf(true, path+".preset", "%q: must be one of ad, rtb, vast", r.Preset)
		return
	}
	oneOf(c, path+".method", r.Method, "GET", "POST")
	c.faultIf(!strings.HasPrefix(r.Path, "/") || strings.ContainsAny(r.Path, " \r\n\t#"), path+".path",
		"%q: must start with /, and must not contain spaces, line ends or #", r.Path)
	c.faultIf(!(r.Weight >= 0 && r.Weight <= 1e6), path+".weight", "%v: must be 0 to 1000000", r.Weight)
	for i, f := range r.Headers {
		at := fmt.Sprintf("%s.headers[%d]", path, i)
		c.faultIf(f.Name == "" || strings.ContainsAny(f.Name, " :\r\n\t"), at+".name", "%q: must be a field name", f.Name)
		c.faultIf(strings.ContainsAny(f.Value, "\r\n"), at+".value", "must not contain a line end")
		c.faultIf(slices.Contains([]string{"host", "content-length", "connection", "transfer-encoding"},
			strings.ToLower(f.Name)), at+".name", "%q: the generator sets this field itself", f.Name)
	}
	total := 1
	for i, n := range r.Segments {
		c.within(fmt.Sprintf("%s.segments[%d]", path, i), n, 1, maxSegments)
		if total *= min(max(n, 1), maxSegments); total > maxSegments {
			c.faultIf(true, path+".segments", "more than %d combinations of values", maxSegments)
			break
		}
	}
	for _, m := range r.Body.Mistakes(path + ".body") {
		*c = append(*c, errors.New(m))
	}
	hasBody := r.Body != (sspsim.Size{})
	c.faultIf(r.Method == "GET" && (hasBody || r.Literal != ""), path+".body", "must not be set for a GET")
	c.faultIf(r.Literal != "" && hasBody, path+".literal", "must not be set beside body")
}
