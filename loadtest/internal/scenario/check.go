package scenario

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/stage"
)

// checker collects the mistakes in a parsed scenario.
type checker struct{ faults Faults }

// fault adds a fault, unless there is one at this path already.
func (c *checker) fault(path, format string, args ...any) {
	if !c.faults.has(path) || path == "scenario" {
		c.faults = append(c.faults, Fault{Path: path, Rule: fmt.Sprintf(format, args...)})
	}
}

// faultIf adds a fault if wrong is true.
func (c *checker) faultIf(wrong bool, path, format string, args ...any) {
	if wrong {
		c.fault(path, format, args...)
	}
}

func (c *checker) within(path string, v, low, high int) {
	c.faultIf(v < low || v > high, path, "%d: must be %d to %d", v, low, high)
}

func (c *checker) oneOf(path, v string, known ...string) {
	c.faultIf(!slices.Contains(known, v), path, "%q: must be one of %s", v, strings.Join(known, ", "))
}

// once adds a fault if names contains the name already.
func (c *checker) once(names map[string]bool, path, name string) {
	c.faultIf(names[name], path, "%q is there twice", name)
	names[name] = true
}

func (c *checker) scenario(s *Scenario) {
	c.ssps(s)
	c.target(s)
	c.load(s)
	names := map[string]bool{}
	for i := range s.Requests {
		path := fmt.Sprintf("requests[%d]", i)
		c.request(path, &s.Requests[i])
		c.once(names, path+".name", s.Requests[i].Name)
	}
	for i, status := range s.Expect.Status {
		c.within(fmt.Sprintf("expect.status[%d]", i), status, 200, 599)
	}
	for i := range s.Changes {
		c.change(s, i)
	}
}

func (c *checker) ssps(s *Scenario) {
	names := map[string]bool{}
	for i := range s.SSPs {
		if s.SSPs[i] == nil {
			s.SSPs[i] = new(stage.SSP)
		}
		ssp := s.SSPs[i]
		ssp.Speaks = cmp.Or(ssp.Speaks, sspsim.HTTP1)
		path := fmt.Sprintf("ssps[%d]", i)
		c.faultIf(ssp.Name == "", path+".name", "is missing")
		c.once(names, path+".name", ssp.Name)
		c.oneOf(path+".protocol", string(ssp.Speaks), string(sspsim.HTTP1), string(sspsim.H2C), string(sspsim.TLSAuto),
			string(sspsim.TLSHTTP2), string(sspsim.TLSHTTP1), string(sspsim.TLSWithout))
		c.behaviour(path+".behaviour", &ssp.Node, &ssp.Behaviour)
	}
}

// behaviour parses the behaviour of an SSP and returns it as JSON.
func (c *checker) behaviour(path string, n *yaml.Node, to *sspsim.Behaviour) []byte {
	if n.Kind == 0 {
		return []byte("{}")
	}
	var v any
	if err := n.Decode(&v); err != nil {
		c.fault(path, "%v", err)
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		c.fault(path, "must have texts as keys: %v", err)
		return nil
	}
	if err := to.UnmarshalJSON(b); err != nil {
		var invalid *sspsim.InvalidError
		if !errors.As(err, &invalid) {
			c.fault(path, "%v", err)
			return nil
		}
		for _, m := range invalid.Mistakes {
			c.faults = append(c.faults, Fault{path, m, n.Line})
		}
	}
	return b
}

func (c *checker) target(s *Scenario) {
	targets := []string{s.Target.URL, s.Target.SSP, s.Adbuffer.Config}
	if given := len(slices.DeleteFunc(targets, func(v string) bool { return v == "" })); given != 1 {
		c.fault("target", "give one of target.url (a running server), target.ssp (a simulated one) and adbuffer.config (adbuffer in front of them); there are %d", given)
	}
	if s.Target.URL != "" {
		u, err := url.Parse(s.Target.URL)
		switch {
		case err != nil:
			c.fault("target.url", "%v", err)
		case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			c.fault("target.url", "%q: must be http://host:port or https://host:port", s.Target.URL)
		case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil || u.Fragment != "":
			c.fault("target.url", "%q: has more than a scheme, a host and a port; paths are those of requests",
				s.Target.URL)
		}
	} else if s.Target.PID != 0 {
		c.fault("target.pid", "%d: only with target.url", s.Target.PID)
	}
	c.faultIf(s.Target.PID < 0, "target.pid", "%d: must be a process", s.Target.PID)
	c.faultIf(s.Target.SSP != "" && stage.Named(s.SSPs, s.Target.SSP) == nil, "target.ssp", "%q: no SSP of this name",
		s.Target.SSP)
	if s.Adbuffer.Config != "" {
		if _, err := (stage.Config{}).Parse(s.Adbuffer.Config); err != nil {
			c.fault("adbuffer.config", "%v", err)
		}
	}
}

func (c *checker) load(s *Scenario) {
	l := &s.Load
	c.oneOf("load.mode", l.Mode, "open", "closed")
	c.oneOf("load.arrivals", l.Arrivals, "constant", "poisson")
	c.oneOf("load.protocol", l.Protocol, "http1", "http1-close", "http1-pipelined", "http2")
	c.within("load.depth", l.Depth, 1, 10000)
	c.within("load.connections", l.Connections, 1, 60000)
	c.within("load.threads", l.Threads, 1, 64)
	c.faultIf(l.Threads > l.Connections && l.Threads <= 64, "load.threads", "%d: must be at most load.connections (%d)",
		l.Threads, l.Connections)
	c.faultIf(l.Timeout < time.Millisecond || l.Timeout > 10*time.Minute, "load.timeout",
		"%v: must be 1ms to 10m, with a unit", l.Timeout)
	c.faultIf(l.Requests < 0 || l.Requests > 0 && l.Mode == "open", "load.requests",
		"%d: a number of requests ends closed loops only", l.Requests)
	c.faultIf(len(l.Phases) == 0, "load.phases", "there must be one at least")
	names, recorded := map[string]bool{}, false
	for i := range l.Phases {
		p := &l.Phases[i]
		path := fmt.Sprintf("load.phases[%d]", i)
		if p.Name == "" {
			p.Name = fmt.Sprintf("phase %d", i+1)
		}
		c.once(names, path+".name", p.Name)
		recorded = recorded || p.Record == nil || *p.Record
		c.phase(path, p, l.Mode)
	}
	c.faultIf(!recorded && len(l.Phases) > 0, "load.phases", "none is recorded")
	https := strings.HasPrefix(s.Target.URL, "https:")
	if ssp := stage.Named(s.SSPs, s.Target.SSP); ssp != nil {
		https = strings.HasPrefix(string(ssp.Speaks), "tls")
	}
	c.faultIf(l.Protocol == "http2" && !https, "load.protocol", "http2 needs a target with TLS")
	c.faultIf(l.Protocol == "http1-pipelined" && https, "load.protocol", "http1-pipelined needs a target without TLS")
}

func (c *checker) phase(path string, p *Phase, mode string) {
	c.faultIf(p.For < time.Millisecond || p.For > 24*time.Hour, path+".for", "%v: must be 1ms to 24h, with a unit",
		p.For)
	rates := p.Rate != nil || p.From != nil || p.To != nil || p.Burst != (Burst{})
	switch {
	case mode == "closed" && rates:
		c.fault(path, "a closed loop has no rate and no burst: it sends when a response has come")
	case mode == "open" && !rates && !c.faults.has(path):
		c.fault(path+".rate", "is missing")
	case p.Rate != nil && (p.From != nil || p.To != nil):
		c.fault(path+".rate", "either rate, or from and to")
	case (p.From == nil) != (p.To == nil):
		c.fault(path, "a ramp needs from and to")
	}
	c.faultIf(p.Burst.Requests < 0 || p.Burst.Requests > 1<<20, path+".burst.requests", "%d: must be 1 to 1048576",
		p.Burst.Requests)
	c.faultIf((p.Burst.Requests > 0) != (p.Burst.Every > 0), path+".burst", "needs every and requests")
	c.faultIf(p.Burst.Every > 0 && p.Burst.Every < time.Millisecond, path+".burst.every", "%v: must be at least 1ms",
		p.Burst.Every)
}

func (c *checker) request(path string, r *load.Template) {
	if _, known := stage.Presets()[r.Preset]; r.Preset != "" && !known {
		c.fault(path+".preset", "%q: must be one of ad, rtb, vast", r.Preset)
		return
	}
	c.faultIf(r.Method != "GET" && r.Method != "POST", path+".method", "%q: must be GET or POST", r.Method)
	c.faultIf(!strings.HasPrefix(r.Path, "/") || strings.ContainsAny(r.Path, " \r\n\t#"), path+".path",
		"%q: must start with / and hold no spaces, line ends or #", r.Path)
	c.faultIf(r.Weight < 0 || r.Weight > 1e6, path+".weight", "%v: must be 0 to 1000000", r.Weight)
	for i, f := range r.Headers {
		at := fmt.Sprintf("%s.headers[%d]", path, i)
		c.faultIf(f.Name == "" || strings.ContainsAny(f.Name, " :\r\n\t"), at+".name", "%q: must be a field name",
			f.Name)
		c.faultIf(strings.ContainsAny(f.Value, "\r\n"), at+".value", "holds a line end")
		c.faultIf(slices.Contains([]string{"host", "content-length", "connection", "transfer-encoding"},
			strings.ToLower(f.Name)), at+".name", "%q is the generator's own", f.Name)
	}
	for _, m := range r.Body.Mistakes(path + ".body") {
		at, rule, _ := strings.Cut(m, ": ")
		c.fault(at, "%s", rule)
	}
	hasBody := r.Body != (sspsim.Size{})
	c.faultIf(r.Method == "GET" && (hasBody || r.Literal != ""), path+".body", "a GET has none")
	c.faultIf(r.Literal != "" && hasBody, path+".literal", "either literal or body")
}

func (c *checker) change(s *Scenario, i int) {
	ch := &s.Changes[i]
	path := fmt.Sprintf("changes[%d]", i)
	c.faultIf(stage.Named(s.SSPs, ch.SSP) == nil, path+".ssp", "%q: no SSP of this name", ch.SSP)
	c.faultIf(ch.At < 0, path+".at", "%v: must not be negative", ch.At)
	c.faultIf(ch.Behaviour.Kind == 0, path+".behaviour", "is missing")
	var parsed sspsim.Behaviour
	ch.JSON = c.behaviour(path+".behaviour", &ch.Behaviour, &parsed)
}
