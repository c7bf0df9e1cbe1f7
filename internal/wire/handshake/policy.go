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
	Groups     []tls.CurveID // groups allowed for the key exchange; nil = all groups of this package
}

// group is a named group of a key exchange. Its name is that of IANA's registry "TLS
// Supported Groups".
type group struct {
	id   tls.CurveID
	name string
	// hybrid means that the group combines a classical group with ML-KEM, which resists quantum computers. TLS 1.2
	// has no hybrid groups.
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

// versions starts with TLS 1.2, ascends and has no gap: VersionCounts.Add computes the index from the version.
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

// NewPolicy returns the policy with this minimum version and these groups. It ignores unknown names, since the
// configuration has been validated.
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

// IsHybrid reports whether name is a hybrid group, which only TLS 1.3 has.
func IsHybrid(name string) bool {
	return slices.ContainsFunc(groups[:], func(g group) bool { return g.hybrid && g.name == name })
}

// Apply applies the policy to config.
func (p Policy) Apply(config *tls.Config) {
	config.MinVersion, config.CurvePreferences = max(p.MinVersion, tls.VersionTLS12), p.Groups
}

// AllowsHybrid reports whether p allows a hybrid group, whose key share makes a ClientHello larger than one packet.
func (p Policy) AllowsHybrid() bool {
	return len(p.Groups) == 0 || slices.ContainsFunc(groups[:], func(g group) bool { return g.hybrid && slices.Contains(p.Groups, g.id) })
}
