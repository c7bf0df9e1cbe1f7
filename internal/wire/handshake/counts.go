package handshake

import (
	"crypto/tls"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
)

// Counts counts handshakes: successful ones by version, group and whether they resumed a session, failed ones by reason.
type Counts struct {
	full, resumed atomic.Uint64

	versions [len(versions)]atomic.Uint64
	groups   [len(groups) + 1]atomic.Uint64 // the last entry counts other key exchanges
	failed   [reasons]atomic.Uint64
}

// Succeeded counts a handshake. A resumed session of TLS 1.2 has the group of its first
// handshake.
func (c *Counts) Succeeded(state *tls.ConnectionState) {
	if state.DidResume {
		c.resumed.Add(1)
	} else {
		c.full.Add(1)
	}
	if i := int(state.Version) - tls.VersionTLS12; i >= 0 && i < len(c.versions) {
		c.versions[i].Add(1)
	}
	i := 0
	for i < len(groups) && groups[i].id != state.CurveID {
		i++
	}
	c.groups[i].Add(1)
}

// Failed counts a handshake that failed.
func (c *Counts) Failed(r Reason) { c.failed[r].Add(1) }

// Totals returns how many handshakes succeeded, from scratch or by resuming a session, and how many failed.
func (c *Counts) Totals() (full, resumed, failed uint64) {
	for r := range c.failed {
		failed += c.failed[r].Load()
	}
	return c.full.Load(), c.resumed.Load(), failed
}

// Descs describe the metrics of Counts.
type Descs struct{ versions, groups, failed *prometheus.Desc }

// NewDescs adds to all, and returns, the metrics prefix_handshakes_by_version_total,
// prefix_handshakes_by_group_total and prefix_handshake_errors_total. with is the peer in their help,
// such as "clients". labels come before each metric's own label.
func NewDescs(all *metrics.Descs, prefix, with string, labels ...string) Descs {
	desc := func(name, label, help string) *prometheus.Desc {
		return all.New(prefix+name, "TLS handshakes with "+with+" that "+help, slices.Concat(labels, []string{label})...)
	}
	return Descs{
		desc("_handshakes_by_version_total", "version", "succeeded, by TLS version."),
		desc("_handshakes_by_group_total", "group", "succeeded, by the group of the key exchange, in IANA's names; those with MLKEM withstand quantum computers, and other is a key exchange without any of these groups."),
		desc("_handshake_errors_total", "reason", "failed: "+reasonsHelp),
	}
}

// Series sends a counter for each version, group and reason.
func (d Descs) Series(to metrics.Sink, c *Counts) {
	for i, v := range versions {
		to.Counter(d.versions, c.versions[i].Load(), v.name)
	}
	for i, g := range groups {
		to.Counter(d.groups, c.groups[i].Load(), g.name)
	}
	to.Counter(d.groups, c.groups[len(groups)].Load(), "other")
	for r, name := range reasonNames {
		to.Counter(d.failed, c.failed[r].Load(), name)
	}
}
