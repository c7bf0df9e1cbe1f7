package config

import (
	"regexp"
	"strings"
)

// removedKeys are the keys that earlier versions had, each with the rule that its error states.
// An entry applies to each path that ends in its name.
var removedKeys = map[string]string{
	"adaptive":                  "gone; see max_in_flight and pool.auto",
	"admin.flight_recorder":     "gone; /debug/pprof/trace records an execution trace",
	"admin.tls.groups":          "gone; server.tls.groups holds for both listeners",
	"admin.tls.min_version":     "gone; server.tls.min_version holds for both listeners",
	"log.access.max_per_second": "gone; failures and slow requests get at most 100 lines a second",
	"max_response_fields":       "gone; a response has at most 256 fields",
	"metrics":                   "gone; a collector scrapes /metrics",
	"server.reduce_idle_memory": "gone; idle connections are parked after 200 ms",
	"tracing.max_per_second":    "gone; at most 200 requests a second are traced",
	"vast_version":              "gone; an empty VAST document has version 4.2",
	"server.server_timing":      "gone; see log.access for the durations of a request",
}

var indexes = regexp.MustCompile(`\[\d*\]`)

// removedKey returns the rule for a key that earlier versions had, or "" for another key.
func removedKey(path string) string {
	path = "." + indexes.ReplaceAllString(path, "")
	for name, rule := range removedKeys {
		if strings.HasSuffix(path, "."+name) {
			return rule
		}
	}
	return ""
}
