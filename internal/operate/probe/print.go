package probe

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/ssp/pool"
)

// Write prints the report for people, and the YAML of the SSP to paste.
func (r *Report) Write(w io.Writer, idle time.Duration) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	for _, a := range r.Addresses {
		family := "IPv4"
		if a.IP.Is6() {
			family = "IPv6"
		}
		switch {
		case a.Error != "":
			row("address, "+family, "%s: %s", a.IP, a.Error)
		case a.Handshake > 0:
			row("address, "+family, "%s: connect %s, TLS handshake %s", a.IP, rounded(a.Connect), rounded(a.Handshake))
		default:
			row("address, "+family, "%s: connect %s", a.IP, rounded(a.Connect))
		}
	}
	if len(r.TLSVersions) > 0 {
		chosen := r.ALPN
		if chosen == "" {
			chosen = "nothing"
		}
		row("TLS", "%s; by ALPN the SSP chooses %s", strings.Join(r.TLSVersions, ", "), chosen)
	}
	if f := r.HTTP1; f != nil {
		row("HTTP/1.1", "%s", f.text(idle))
	} else {
		row("HTTP/1.1", "no")
	}
	if f := r.HTTP2; f != nil {
		streams := "no limit of streams"
		if f.Streams > 0 {
			streams = fmt.Sprintf("%d streams at once", f.Streams)
		}
		row("HTTP/2", "%s; %s", f.text(idle), streams)
	} else {
		row("HTTP/2", "no")
	}
	row("pipelining", "%s", answer(r.Pipelines, "--pipelining, --requests"))
	row("gzip", "responses: %s; a compressed request gets the same status: %s", answer(&r.GzipResponse, ""), answer(r.GzipRequest, "--body, --requests"))
	row("zstd", "responses: %s; a compressed request gets the same status: %s", answer(r.ZstdResponse, "--body, --requests"), answer(r.ZstdRequest, "--body, --requests"))
	forms := make([]string, len(r.NoBids))
	for i, form := range r.NoBids {
		forms[i] = string(form)
	}
	if len(forms) == 0 {
		forms = []string{"none was seen"}
	}
	row("no-bid", "%s", strings.Join(forms, "; "))
	row("requests", "%d, with %d ads or other bodies", r.Requests, r.Fills)
	t.Flush()
	for _, e := range r.Errors {
		fmt.Fprintf(w, "# %s\n", e)
	}
	fmt.Fprintf(w, "\n%s", r.YAML())
}

func (f *ProtocolFacts) text(idle time.Duration) string {
	parts := []string{fmt.Sprintf("first response %s, median %s", rounded(f.First), rounded(f.Median))}
	switch {
	case f.Closed:
		parts = append(parts, fmt.Sprintf("a connection serves %d requests", f.Served))
	case f.Failed:
		parts = append(parts, fmt.Sprintf("a connection served %d requests, and the next one failed", f.Served))
	default:
		parts = append(parts, fmt.Sprintf("a connection served %d requests and stayed open", f.Served))
	}
	switch {
	case f.IdleLimit > 0:
		parts = append(parts, "closed when idle for "+rounded(f.IdleLimit).String())
	case f.IdleOpen > 0:
		parts = append(parts, fmt.Sprintf("still open when idle for %v", f.IdleOpen))
	case idle > 0:
		parts = append(parts, "idle limit unknown")
	default:
		parts = append(parts, "idle limit not tried (--idle)")
	}
	if f.Announced > 0 {
		parts = append(parts, fmt.Sprintf("announces %v", f.Announced))
	}
	return strings.Join(parts, "; ")
}

// answer returns yes or no, or for nil the flags with which the probe would have tried it.
func answer(v *bool, flags string) string {
	switch {
	case v == nil:
		return "not tried (" + flags + ")"
	case *v:
		return "yes"
	}
	return "no"
}

// YAML returns the SSP for the list ssps, with the keys whose default does not suit it.
func (r *Report) YAML() string {
	var ssp sspYAML
	ssp.Name, ssp.Endpoints = r.name(), []string{r.URL}
	if protocol := r.protocol(); protocol != "auto" {
		ssp.Protocol = protocol
	}
	var limits []time.Duration
	add := func(f *ProtocolFacts) {
		for _, limit := range []time.Duration{f.IdleLimit, f.Announced} {
			if limit > 0 {
				limits = append(limits, limit)
			}
		}
	}
	if f := r.HTTP1; f != nil && r.protocol() != "http2" && r.protocol() != "h2c" {
		add(f)
		if f.Closed {
			ssp.Pool.MaxRequests = f.Served
		}
	}
	if f := r.HTTP2; f != nil && r.protocol() != "http1" {
		add(&f.ProtocolFacts)
		if f.Streams > 0 && f.Streams < 100 {
			ssp.Pool.MaxStreams = f.Streams
		}
	}
	if len(limits) > 0 {
		if limit := pool.IdleTimeoutBelow(slices.Min(limits)); limit < 55*time.Second {
			ssp.Pool.IdleTimeout = limit.String()
		}
	}
	var connect, handshake time.Duration
	for _, a := range r.Addresses {
		connect, handshake = max(connect, a.Connect), max(handshake, a.Handshake)
	}
	if connect*3 > 250*time.Millisecond {
		ssp.Timeouts.Connect = upTo(connect * 3).String()
	}
	if handshake*3 > 500*time.Millisecond {
		ssp.Timeouts.TLSHandshake = upTo(handshake * 3).String()
	}
	switch {
	case slices.Contains(r.NoBids, OpenRTB):
		ssp.NoBidBody = "openrtb"
	case slices.Contains(r.NoBids, VAST):
		ssp.NoBidBody = "vast"
	}
	var text bytes.Buffer
	out := yaml.NewEncoder(&text)
	out.SetIndent(2)
	if err := out.Encode(map[string][]sspYAML{"ssps": {ssp}}); err != nil {
		panic("BUG: " + err.Error())
	}
	return text.String()
}

// sspYAML has the keys of an SSP that a probe can find, in the order of the configuration.
type sspYAML struct {
	Name      string   `yaml:"name"`
	Endpoints []string `yaml:"endpoints"`
	Protocol  string   `yaml:"protocol,omitempty"`
	Pool      struct {
		IdleTimeout string `yaml:"idle_timeout,omitempty"`
		MaxRequests int    `yaml:"max_requests_per_conn,omitempty"`
		MaxStreams  uint32 `yaml:"max_streams_per_conn,omitempty"`
	} `yaml:"pool,omitempty"`
	Timeouts struct {
		Connect      string `yaml:"connect,omitempty"`
		TLSHandshake string `yaml:"tls_handshake,omitempty"`
	} `yaml:"timeouts,omitempty"`
	NoBidBody string `yaml:"no_bid_body,omitempty"`
}

// protocol returns the value of the key protocol.
func (r *Report) protocol() string {
	cleartext := strings.HasPrefix(strings.ToLower(r.URL), "http:")
	switch {
	case r.HTTP1 == nil && cleartext:
		return "h2c"
	case r.HTTP1 == nil:
		return "http2"
	case r.HTTP2 == nil && r.Pipelines != nil && *r.Pipelines:
		return "http1-pipelined"
	}
	return "auto"
}

// name returns a name for the SSP, made from its host.
func (r *Report) name() string {
	u, err := url.Parse(r.URL)
	if err != nil {
		return "ssp"
	}
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(u.Hostname()))
	return strings.Trim(name[:min(len(name), 64)], "-")
}

// upTo rounds d up to a multiple of 50 ms.
func upTo(d time.Duration) time.Duration {
	const step = 50 * time.Millisecond
	return (d + step - 1) / step * step
}

// rounded rounds d to the digits that an operator needs.
func rounded(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
