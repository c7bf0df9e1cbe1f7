package config

import (
	"regexp"
	"strings"
)

// removedKeys are the keys that earlier versions had, each with the rule that its error states.
// A name applies to each path that ends in it.
var removedKeys = map[string]string{
	"admin.flight_recorder":     "gone; /debug/pprof/trace records an execution trace",
	"metrics":                   "gone; a collector scrapes /metrics",
	"server.reduce_idle_memory": "gone; idle connections are parked after 200 ms",
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
