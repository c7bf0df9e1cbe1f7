package handshake

import (
	"crypto/tls"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Counts counts handshakes that succeeded, by version and group.
type Counts struct {
	versions [len(versions)]atomic.Uint64
	groups   [len(groups) + 1]atomic.Uint64 // the last is of other key exchanges
}

// Count counts a handshake. A resumed session of TLS 1.2 has the group of its first
// handshake.
func (c *Counts) Count(state *tls.ConnectionState) {
	if i := int(state.Version) - tls.VersionTLS12; i >= 0 && i < len(c.versions) {
		c.versions[i].Add(1)
	}
	i := 0
	for i < len(groups) && groups[i].id != state.CurveID {
		i++
	}
	c.groups[i].Add(1)
}

// Totals are Counts at one moment, by the values of the labels.
type Totals struct{ versions, groups []uint64 }

// Load returns the counts as of now.
func (c *Counts) Load() Totals {
	t := Totals{make([]uint64, len(c.versions)), make([]uint64, len(c.groups))}
	for i := range c.versions {
		t.versions[i] = c.versions[i].Load()
	}
	for i := range c.groups {
		t.groups[i] = c.groups[i].Load()
	}
	return t
}

// Descs describe the counters of one side: labels `version` and `group`, behind the
// labels of the caller.
type Descs struct{ versions, groups *prometheus.Desc }

// NewDescs returns the counters prefix_by_version_total and prefix_by_group_total. with
// names the other side in their help: "clients".
func NewDescs(prefix, with string, labels ...string) Descs {
	desc := func(by, help string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+"_by_"+by+"_total", "TLS handshakes with "+with+" that succeeded, by "+help, append(labels[:len(labels):len(labels)], by), nil)
	}
	return Descs{
		desc("version", "TLS version."),
		desc("group", "the group of the key exchange, in IANA's names; those with MLKEM withstand quantum computers. other: a key exchange without one of these groups."),
	}
}

// Describe sends both descriptions.
func (d Descs) Describe(ch chan<- *prometheus.Desc) {
	ch <- d.versions
	ch <- d.groups
}

// Collect sends a counter for each version and each group.
func (d Descs) Collect(ch chan<- prometheus.Metric, t Totals, labels ...string) {
	send := func(desc *prometheus.Desc, n uint64, name string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), append(labels[:len(labels):len(labels)], name)...)
	}
	for i, v := range versions {
		send(d.versions, t.versions[i], v.name)
	}
	for i, g := range groups {
		send(d.groups, t.groups[i], g.name)
	}
	send(d.groups, t.groups[len(groups)], "other")
}
