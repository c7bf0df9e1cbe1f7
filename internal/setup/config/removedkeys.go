package config

import (
	"regexp"
	"strings"
)

// removedKeys are the keys that earlier versions had, each with the rule that its error states.
// An entry applies to each path that ends in its name.
var removedKeys = map[string]string{
	"adaptive":                  "removed; see max_in_flight and pool.auto",
	"admin.flight_recorder":     "removed; /debug/pprof/trace records an execution trace",
	"admin.tls.groups":          "removed; server.tls.groups applies to both listeners",
	"admin.tls.min_version":     "removed; server.tls.min_version applies to both listeners",
	"gzip_request":              "removed; compress: {coding: gzip} takes its place",
	"log.access.max_per_second": "removed; failures and slow requests get at most 100 lines a second",
	"max_response_fields":       "removed; a response has at most 256 fields",
	"metrics":                   "removed; a collector scrapes /metrics",
	"server.reduce_idle_memory": "removed; idle connections are parked after 200 ms",
	"tracing.max_per_second":    "removed; at most 200 requests a second are traced",
	"vast_version":              "removed; an empty VAST document has version 4.2",
	"server.server_timing":      "removed; see log.access for the durations of a request",
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
