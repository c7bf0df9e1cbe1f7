// Package toxitest holds tests in which toxiproxy stands between adbuffer and SSPs over TLS:
// latency, slices, resets, narrow bandwidth, silence.
package toxitest
