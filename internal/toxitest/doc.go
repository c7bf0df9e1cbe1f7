// Package toxitest holds tests in which toxiproxy stands between adbuffer and SSPs
// that speak TLS: latency, slices, resets, narrow bandwidth, silence.
package toxitest
