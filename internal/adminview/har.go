package adminview

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"adbuffer/internal/upstream"
)

// captureView is what GET /capture shows.
type captureView struct {
	SSP       string     `json:"ssp"`
	Exchanges []captured `json:"exchanges"`
}

// HAR returns the exchanges as HTTP Archive 1.2. Browsers' developer tools and proxies open this
// format. Its own fields begin with an underscore. http://www.softwareishard.com/blog/har-12-spec/
func (v captureView) HAR() any {
	entries := make([]map[string]any, 0, len(v.Exchanges))
	for i := range v.Exchanges {
		entries = append(entries, v.Exchanges[i].har(v.SSP))
	}
	return map[string]any{"log": map[string]any{
		"version": "1.2", "creator": map[string]any{"name": "adbuffer", "version": "1"}, "entries": entries,
	}}
}

func (c *captured) har(ssp string) map[string]any {
	t := &c.times
	version := map[string]string{upstream.HTTP2.String(): "HTTP/2.0"}[c.Protocol]
	if version == "" {
		version = "HTTP/1.1"
	}
	timings := map[string]any{"dns": -1.0, "connect": -1.0, "ssl": -1.0, "send": 0.0} // -1: does not apply
	acquired, first := t.Acquired, t.FirstByte
	if acquired.IsZero() { // it never got a place
		acquired = t.Done
	}
	if first.IsZero() { // there is no response
		first = t.Done
	}
	blocked := acquired.Sub(t.Queued)
	if t.TCP > 0 {
		blocked = max(0, blocked-t.DNS-t.TCP-t.TLS)
		timings["dns"], timings["connect"] = milliseconds(t.DNS), milliseconds(t.TCP+t.TLS)
	}
	if t.TLS > 0 {
		timings["ssl"] = milliseconds(t.TLS) // part of connect
	}
	timings["blocked"], timings["wait"], timings["receive"] = milliseconds(blocked), milliseconds(first.Sub(acquired)), milliseconds(t.Done.Sub(first))
	e := map[string]any{
		"startedDateTime": c.At.Format(time.RFC3339Nano), "time": c.TotalMs, "cache": map[string]any{}, "timings": timings,
		"request": harRequest(c.Request, version), "response": harResponse(c.Response, version),
		"_id": c.ID, "_ssp": ssp, "_outcome": c.Outcome,
	}
	if c.peer.IsValid() {
		e["serverIPAddress"] = c.peer.Addr().String()
	}
	if c.Error != "" {
		e["_error"] = c.Error
	}
	return e
}

// harMessage returns the parts that requests and responses share. m is nil if there was no message.
func harMessage(m *capturedMsg, version string) map[string]any {
	fields := []map[string]string{}
	for _, f := range m.Fields {
		fields = append(fields, map[string]string{"name": f[0], "value": f[1]})
	}
	return map[string]any{"httpVersion": version, "cookies": []any{}, "headers": fields, "headersSize": -1, "bodySize": m.BodyBytes}
}

func harRequest(m *capturedMsg, version string) map[string]any {
	if m == nil {
		m = &capturedMsg{Method: http.MethodGet, URL: "about:blank"} // nothing was sent, and HAR requires a request
	}
	r := harMessage(m, version)
	query := []map[string]string{}
	if u, err := url.Parse(m.URL); err == nil {
		for part := range strings.SplitSeq(u.RawQuery, "&") {
			if name, value, _ := strings.Cut(part, "="); part != "" {
				query = append(query, map[string]string{"name": name, "value": value})
			}
		}
	}
	r["method"], r["url"], r["queryString"] = m.Method, m.URL, query
	if m.BodyBytes > 0 {
		r["postData"] = map[string]any{"mimeType": m.field("Content-Type"), "text": m.Body}
	}
	return r
}

func harResponse(m *capturedMsg, version string) map[string]any {
	if m == nil {
		m = new(capturedMsg) // HAR's status 0 means no response
	}
	r := harMessage(m, version)
	content := map[string]any{"size": m.BodyBytes, "mimeType": m.field("Content-Type"), "text": m.Body}
	if m.BodyBinary != nil {
		content["text"], content["encoding"] = m.BodyBinary, "base64" // JSON writes bytes so
	}
	r["status"], r["statusText"], r["content"], r["redirectURL"] = m.Status, http.StatusText(m.Status), content, m.field("Location")
	return r
}

// field returns the value of the first field of this name, "" for none.
func (m *capturedMsg) field(name string) string {
	for _, f := range m.Fields {
		if strings.EqualFold(f[0], name) {
			return f[1]
		}
	}
	return ""
}
