// Package handshake holds the shared parts of TLS handshakes with clients, operators and SSPs: the
// allowed versions and groups, and the counters.
package handshake

import (
	"crypto/tls"
	"slices"
)

// Policy says which handshakes are allowed. It never changes.
type Policy struct {
	MinVersion uint16        // tls.VersionTLS12 or tls.VersionTLS13
	Groups     []tls.CurveID // of the key exchange; nil = all of this package
}

// group is a named group of a key exchange. Its name is that of IANA's registry "TLS
// Supported Groups".
type group struct {
	id   tls.CurveID
	name string
	// hybrid groups join a classical group and ML-KEM, which a quantum computer does not
	// break. TLS 1.2 has none of them.
	hybrid bool
}

// groups are the groups of crypto/tls, in its order of preference.
var groups = [...]group{
	{tls.X25519MLKEM768, "X25519MLKEM768", true},
	{tls.SecP256r1MLKEM768, "SecP256r1MLKEM768", true},
	{tls.SecP384r1MLKEM1024, "SecP384r1MLKEM1024", true},
	{tls.X25519, "x25519", false},
	{tls.CurveP256, "secp256r1", false},
	{tls.CurveP384, "secp384r1", false},
	{tls.CurveP521, "secp521r1", false},
}

var versions = [...]struct {
	id   uint16
	name string
}{{tls.VersionTLS12, "1.2"}, {tls.VersionTLS13, "1.3"}}

// GroupNames lists the names of all groups.
func GroupNames() []string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	return names
}

// NewPolicy returns the policy of these names. It ignores unknown names: the configuration has been
// validated.
func NewPolicy[V, G ~string](minVersion V, groupNames []G) Policy {
	p := Policy{MinVersion: tls.VersionTLS12}
	for _, v := range versions {
		if v.name == string(minVersion) {
			p.MinVersion = v.id
		}
	}
	for _, g := range groups {
		if slices.Contains(groupNames, G(g.name)) {
			p.Groups = append(p.Groups, g.id)
		}
	}
	return p
}

// IsHybrid reports whether name is a group of TLS 1.3 only.
func IsHybrid(name string) bool {
	return slices.ContainsFunc(groups[:], func(g group) bool { return g.hybrid && g.name == name })
}

// Apply writes the policy into c.
func (p Policy) Apply(c *tls.Config) {
	c.MinVersion, c.CurvePreferences = max(p.MinVersion, tls.VersionTLS12), p.Groups
}

// AllowsHybrid reports whether p has a hybrid group, whose key share makes a ClientHello larger than one
// packet.
func (p Policy) AllowsHybrid() bool {
	return len(p.Groups) == 0 || slices.ContainsFunc(groups[:], func(g group) bool { return g.hybrid && slices.Contains(p.Groups, g.id) })
}
