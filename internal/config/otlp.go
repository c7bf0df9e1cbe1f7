package config

import (
	"fmt"
	"slices"
	"strings"

	"adbuffer/internal/otlpmetrics"
)

const otlpEndpoint = "metrics.otlp.endpoint"

// otlpVariables are OpenTelemetry's variables that are settings of adbuffer, in the order in which they
// decide. The exporter itself reads others, such as OTEL_EXPORTER_OTLP_HEADERS.
var otlpVariables = []string{
	"OTEL_METRICS_EXPORTER",
	"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL",
	"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT",
}

// otlpVariables sets an endpoint that the file lacks to that of OpenTelemetry's variables. A receiver
// that they describe and that adbuffer cannot reach is a warning: other programs may use them.
func (r *report) otlpVariables(o *otlpmetrics.Receiver, env Env) []Warning {
	at := slices.IndexFunc(otlpVariables[3:], func(name string) bool { return env[name] != "" })
	if o.Endpoint != "" || at < 0 {
		return nil
	}
	name := otlpVariables[3+at]
	if exporter := env["OTEL_METRICS_EXPORTER"]; exporter != "" && exporter != "otlp" {
		return nil // none, or another one
	}
	for _, protocol := range otlpVariables[1:3] {
		if p := env[protocol]; p != "" && p != "http/protobuf" {
			return []Warning{{name, fmt.Sprintf("adbuffer sends no metrics there: %s is %s, and adbuffer knows http/protobuf only; see %s", protocol, p, otlpEndpoint)}}
		} else if p != "" {
			break
		}
	}
	o.Endpoint = env[name]
	r.marks[otlpEndpoint] = mark{env: name, text: o.Endpoint}
	if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		o.Endpoint = strings.TrimSuffix(o.Endpoint, "/") + "/v1/metrics"
	}
	return nil
}
