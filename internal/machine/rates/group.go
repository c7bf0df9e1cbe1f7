package rates

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
)

// Group is one of 16 groups of clients, to which their addresses are hashed. Failures are counted by
// group, so that the failures of one client are not held against all others. Two rules use that:
//
//   - A share of failures leaves out the quarter of the groups that raises it most. See Window.Ratio.
//   - An event counts at once if it happened to most groups. See Groups.Most.
//
// Both rules change nothing while all requests come from one group. Groups that send no requests do
// not matter.
type Group uint8

// Ours is the group of failures that no client's request caused, such as a failed dial. It counts
// with every share, and for all groups.
const Ours Group = ClientGroups

// ClientGroups is the number of groups of clients, from 0 on.
const ClientGroups = 16

const allGroups = ClientGroups + 1

// seed prevents that a client chooses its group.
var seed = rand.Uint64()

// GroupOf returns the group of a client's address. All addresses of an IPv6 /48 are in one group: a
// /48 is the most that a site usually gets, and one client may use all its addresses. The zero Addr,
// an unknown address, has a group too.
func GroupOf(client netip.Addr) Group { return Group(Hash(client) % ClientGroups) }

// Hash returns a hash of a client's address. It is the same for all addresses of an IPv6 /48.
func Hash(client netip.Addr) uint64 {
	a := client.As16()
	n := binary.BigEndian.Uint64(a[:8]) >> 16
	if n == 0 { // IPv4 has its address in the last bytes
		n = binary.BigEndian.Uint64(a[8:])
	}
	// The finalizer of MurmurHash3.
	n ^= seed
	n = (n ^ n>>33) * 0xff51afd7ed558ccd
	n = (n ^ n>>33) * 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}

// Groups is a set of groups.
type Groups uint32

// Add adds g. With Ours it adds all groups.
func (s *Groups) Add(g Group) { *s |= g.set() }

func (g Group) set() Groups {
	if g == Ours {
		return 1<<ClientGroups - 1
	}
	return 1 << g
}

// Most reports whether s is more than the given share of all, or at least enough groups, or all. The
// groups of s count as groups of all.
func (s Groups) Most(all Groups, share float64, enough int) bool {
	n := bits.OnesCount32(uint32(s | all))
	return bits.OnesCount32(uint32(s)) >= min(int(share*float64(n))+1, n, enough)
}

// sum is the number of a group's requests, and how many of them failed.
type sum struct{ n, failures float64 }

// trimmedRatio returns the share of failures of all groups but the worst: the quarter of the client
// groups, rounded up, that raise the share most. Where the other groups have fewer than enough requests,
// the worst ones count for as many as are missing. With requests of one group, the result is their
// share. Without requests it is 0. trimmedRatio changes groups.
//
// So the groups that are left out cannot raise the share beyond that of the others. A share of 1 stays
// 1, however unequal the groups are.
func trimmedRatio(groups *[allGroups]sum, enough float64) float64 {
	var counted, out sum
	active := 0
	for i, g := range groups {
		counted.n += g.n
		counted.failures += g.failures
		if g.n > 0 && Group(i) != Ours {
			active++
		}
	}
	if counted.n == 0 {
		return 0
	}
	ratio := counted.failures / counted.n
	if active <= 1 {
		return ratio
	}
	for range (active + 3) / 4 {
		worst, most := Ours, 0.0
		for i, g := range groups[:ClientGroups] {
			if excess := g.failures - ratio*g.n; excess > most {
				worst, most = Group(i), excess
			}
		}
		g := &groups[worst]
		if worst == Ours {
			break // no group is above the share of all
		}
		counted.n -= g.n
		counted.failures -= g.failures
		out.n += g.n
		out.failures += g.failures
		*g = sum{}
	}
	if missing := min(enough-counted.n, out.n); missing > 0 {
		counted.n += missing
		counted.failures += out.failures / out.n * missing
	}
	return counted.failures / counted.n
}
