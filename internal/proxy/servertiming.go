package proxy

import (
	"strconv"
	"time"
)

// addServerTiming adds the durations of the parts of a request, in milliseconds.
// https://www.w3.org/TR/server-timing/
func (r *request) addServerTiming(w *response, e *end) {
	b := r.scratch[:0]
	if ex := e.exchange; ex != nil && !ex.Times.Acquired.IsZero() {
		t := &ex.Times
		b = appendTiming(b, "pending", t.Acquired.Sub(t.Queued))
		if t.TCP > 0 {
			b = appendTiming(b, "dial", t.DNS+t.TCP)
		}
		if t.TLS > 0 {
			b = appendTiming(b, "tls", t.TLS)
		}
		if !t.FirstByte.IsZero() {
			b = appendTiming(b, "ttfb", t.FirstByte.Sub(t.Acquired))
		}
	}
	b = appendTiming(b, "total", e.took)
	w.addField("Server-Timing", b)
	r.scratch = b
}

func appendTiming(b []byte, name string, d time.Duration) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b = append(append(b, name...), ";dur="...)
	return strconv.AppendFloat(b, float64(max(0, d).Microseconds())/1000, 'f', -1, 64)
}
