package rates

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
)

// Group is one of 16 groups into which clients are hashed by their addresses. Failures are counted by group, so that
// the failures of one client are not held against all others. Two rules use the groups:
//
//   - A share of failures leaves out the quarter of the groups that raises it most. See Window.Ratio.
//   - An event counts at once if it has happened to most groups. See Groups.Most.
//
// Both rules change nothing while all requests come from one group. Groups that send no requests do
// not matter.
type Group uint8

// Ours is the group of failures that no client's request caused, such as a failed dial. A share of failures never
// leaves it out, and in a set of groups it stands for all groups.
const Ours Group = ClientGroups

// ClientGroups is the number of groups of clients. They are numbered from 0.
const ClientGroups = 16

const allGroups = ClientGroups + 1

// seed is random, so that clients cannot choose their group.
var seed = rand.Uint64()

// GroupOf returns the group of a client's address. All addresses of an IPv6 /48 are in one group: a /48 is the
// largest network that a site usually gets, and one client may use all its addresses. The zero Addr stands for an
// unknown address, and has a group too.
func GroupOf(client netip.Addr) Group { return Group(Hash(client) % ClientGroups) }

// Hash returns a hash of a client's address. It is the same for all addresses of an IPv6 /48.
func Hash(client netip.Addr) uint64 {
	a := client.As16()
	n := binary.BigEndian.Uint64(a[:8]) >> 16
	if n == 0 { // an IPv4 address is in the last bytes
		n = binary.BigEndian.Uint64(a[8:])
	}
	// The finalizer of MurmurHash3.
	n ^= seed
	n = (n ^ n>>33) * 0xff51afd7ed558ccd
	n = (n ^ n>>33) * 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}

// Groups is a set of groups of clients.
type Groups uint32

// Add adds g. With Ours it adds all groups.
func (s *Groups) Add(g Group) { *s |= g.set() }

func (g Group) set() Groups {
	if g == Ours {
		return 1<<ClientGroups - 1
	}
	return 1 << g
}

// Most reports whether s holds more than the given share of the groups of all, or at least sufficient groups, or all
// groups. The groups of s are added to all. If both sets are empty, it returns true.
func (s Groups) Most(all Groups, share float64, sufficient int) bool {
	n := bits.OnesCount32(uint32(s | all))
	return bits.OnesCount32(uint32(s)) >= min(int(share*float64(n))+1, n, sufficient)
}

// sum holds the number of a group's requests, and the number of those that failed.
type sum struct{ requests, failures float64 }

// trimmedRatio returns the share of failures without the worst groups: the quarter of the active client groups,
// rounded up, that raise the share most. If the remaining groups have fewer than minRequests requests, the worst
// groups' mean share of failures stands in for the requests that are missing. If at most one group of clients has
// requests, none is left out. Without requests the result is 0. trimmedRatio changes groups.
//
// So the worst groups cannot raise the result above the share of the other groups, if these have at least minRequests
// requests. A share of 1 stays 1, however unequal the groups are.
func trimmedRatio(groups *[allGroups]sum, minRequests float64) float64 {
	var counted, excluded sum
	active := 0
	for i, g := range groups {
		counted.requests += g.requests
		counted.failures += g.failures
		if g.requests > 0 && Group(i) != Ours {
			active++
		}
	}
	if counted.requests == 0 {
		return 0
	}
	ratio := counted.failures / counted.requests
	if active <= 1 {
		return ratio
	}
	for range (active + 3) / 4 {
		worst, highestExcess := Ours, 0.0
		for i, g := range groups[:ClientGroups] {
			if excess := g.failures - ratio*g.requests; excess > highestExcess {
				worst, highestExcess = Group(i), excess
			}
		}
		g := &groups[worst]
		if worst == Ours {
			break // no group's share is above the share of all groups
		}
		counted.requests -= g.requests
		counted.failures -= g.failures
		excluded.requests += g.requests
		excluded.failures += g.failures
		*g = sum{}
	}
	if shortfall := min(minRequests-counted.requests, excluded.requests); shortfall > 0 {
		counted.requests += shortfall
		counted.failures += excluded.failures / excluded.requests * shortfall
	}
	return counted.failures / counted.requests
}
