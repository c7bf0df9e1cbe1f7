package rates

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestAddressesAreInGroups(t *testing.T) {
	count := map[Group]int{}
	for i := range 3200 {
		count[GroupOf(netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i % 250)}))]++
	}
	for g := range Group(ClientGroups) {
		testsupport.Between(t, count[g], 100, 300, "%d of 3200 addresses are in group %d, want about 200", g)
	}
	for _, same := range [][2]string{
		{"2001:db8:1::1", "2001:db8:1:ffff::2"}, // a /48
		{"198.51.100.7", "::ffff:198.51.100.7"},
	} {
		a, b := GroupOf(netip.MustParseAddr(same[0])), GroupOf(netip.MustParseAddr(same[1]))
		testsupport.True(t, a == b && a < ClientGroups, "%s is in group %d, %s in group %d", same[0], a, same[1], b)
	}
	other := 0
	for i := range byte(100) {
		if GroupOf(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, i})) != GroupOf(netip.MustParseAddr("2001:db8:1::1")) {
			other++
		}
	}
	testsupport.AtLeast(t, other, 50, "%d of 100 IPv6 networks are in another group than the first one")
	if g := GroupOf(netip.Addr{}); g >= ClientGroups {
		t.Errorf("an unknown address is in group %d", g)
	}
}

func TestMostGroups(t *testing.T) {
	set := func(n int) (s Groups) {
		for g := range Group(n) {
			s.Add(g)
		}
		return s
	}
	for _, c := range []struct {
		some, all int
		share     float64
		enough    int
		want      bool
	}{
		{1, 1, 0.5, 16, true},
		{1, 2, 0.5, 16, false},
		{2, 2, 0.5, 16, true},
		{2, 3, 0.5, 16, true},
		{8, 16, 0.5, 16, false},
		{9, 16, 0.5, 16, true},
		{4, 16, 0.5, 5, false},
		{5, 16, 0.5, 5, true},
		{1, 16, 0, 16, true},
		{15, 16, 1, 16, false},
		{16, 16, 1, 16, true},
		{2, 0, 0.5, 16, true}, // the groups in question belong to all
	} {
		some, all := set(c.some), set(c.all)
		testsupport.Equal(t, some.Most(all, c.share, c.enough), c.want, "%[2]+v: %[1]v", c)
	}
	var s Groups
	if s.Add(Ours); s != set(ClientGroups) {
		t.Errorf("Ours adds %b, want all groups", s)
	}
}

// A quarter of the groups, rounded up, is ignored; failures that no client caused always count.
func TestTheWorstQuarterOfTheGroupsDoesNotCount(t *testing.T) {
	for _, c := range []struct {
		groups, failing, ours int
		want                  float64
	}{{1, 1, 0, 1}, {2, 1, 0, 0}, {4, 2, 0, 1.0 / 3}, {5, 3, 0, 1.0 / 3}, {8, 3, 0, 1.0 / 6}, {9, 3, 0, 0}, {9, 4, 0, 1.0 / 6}, {2, 0, 100, 1.0 / 3}, {2, 1, 100, 0.5}} {
		var w Window
		w.Init(1e9, 0)
		for g := range Group(c.groups) {
			for range 100 {
				w.Record(0, g, int(g) < c.failing)
			}
		}
		for range c.ours {
			w.Record(0, Ours, true)
		}
		got := w.Ratio(0, 20)
		testsupport.True(t, math.Abs(got-c.want) < 1e-9, "%+v: %v", c, got)
	}
}

func TestAClientCannotChooseItsGroup(t *testing.T) {
	was := seed
	defer func() { seed = was }()
	client, groups := netip.MustParseAddr("198.51.100.7"), make(map[Group]bool)
	for seed = range uint64(100) {
		groups[GroupOf(client)] = true
	}
	testsupport.AtLeast(t, len(groups), 10, "in 100 processes a client is in %d groups")
}

func TestARowOfFailuresHasItsGroups(t *testing.T) {
	var r Row
	for n, g := range []Group{3, 5, 3} {
		testsupport.Equal(t, r.Failed(g), n+1, "failures in a row: %d")
	}
	testsupport.True(t, r.Length() == 3 && r.Groups() == 1<<3|1<<5, "%d failures of the groups %b", r.Length(), r.Groups())
	var w Window
	w.Init(1e9, 0)
	for g, n := range map[Group]int{3: 1, 4: 10, 7: 100, Ours: 1000} {
		for range n {
			w.Record(0, g, false)
		}
	}
	all, others := w.Others(r.Groups())
	testsupport.True(t, all == 1<<3|1<<4|1<<7 && others == 110, "the groups %b, %d requests of others", all, others)
	r.End()
	testsupport.True(t, r.Length() == 0 && r.Groups() == 0 && r.Failed(2) == 1, "after the end: %d, %b", r.Length(), r.Groups())
}

// The share of failures that counts is compared with its rules, over random windows.
func TestOneGroupCannotRaiseTheShareOfFailures(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		var w Window
		w.Init(1e9, 0)
		record := func(g Group, n, failures int) {
			for i := range n {
				w.Record(0, g, i < failures)
			}
		}
		// Up to 16 groups whose requests fail up to a ratio, and another group whose requests fail at any ratio.
		limit := rnd.Float64()
		bad := Group(rnd.IntN(ClientGroups))
		others := 0
		for g := range Group(rnd.IntN(allGroups)) {
			if g != bad {
				n := rnd.IntN(1 << rnd.IntN(8))
				record(g, n, int(limit*float64(n)))
				others += n
			}
		}
		n := 1 + rnd.IntN(1000)
		record(bad, n, rnd.IntN(n+1))
		requests, failures := w.Tally()
		all := float64(failures) / float64(requests)
		enough := rnd.IntN(50)
		got := w.Ratio(0, enough)
		switch {
		case requests < uint64(enough):
			testsupport.MustTrue(t, got == 0, "the share of %d requests is %v, want 0 below %d", requests, got, enough)
		case got > all+1e-9:
			t.Fatalf("the share is %v, of all requests %v", got, all)
		case others == 0 && math.Abs(got-all) > 1e-9:
			t.Fatalf("the share is %v with a single group, want %v", got, all)
		case others > 0 && others >= enough && got > limit+1e-9:
			t.Fatalf("the share is %v, and at most %v of the other groups' %d requests failed", got, limit, others)
		}
	}
}

// If all requests fail, the share is 1, however the groups share the load.
func TestAllFailuresCountWhateverTheirGroups(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	for range 300 {
		var w Window
		w.Init(1e9, 0)
		for g := range Group(rnd.IntN(allGroups + 1)) {
			for range rnd.IntN(1 << rnd.IntN(10)) {
				w.Record(0, g, true)
			}
		}
		n, _ := w.Tally()
		testsupport.MustTrue(t, n <= 0 || w.Ratio(0.99, 1) == 1, "the share of %d failures is %v", n, w.Ratio(0.99, 1))
	}
}

// A group that is ignored still counts for as many requests as the other groups lack. So a client that sends a
// request now and then does not hide that all requests of another client fail.
func TestFewRequestsOfOthersCountLittle(t *testing.T) {
	for others, want := range map[int]float64{0: 1, 2: 0.9, 10: 0.5, 19: 0.05, 20: 0, 1000: 0} {
		var w Window
		w.Init(1e9, 0)
		for range 1000 {
			w.Record(0, 3, true)
		}
		for range others {
			w.Record(0, 5, false)
		}
		got := w.Ratio(0, 20)
		testsupport.True(t, math.Abs(got-want) <= 1e-9, "with %d good requests of another group the share is %v, want %v", others, got, want)
	}
}

func BenchmarkWindowRecord(b *testing.B) {
	var w Window
	w.Init(10e9, 0)
	b.ReportAllocs()
	for i := range b.N {
		w.Record(0, Group(i%ClientGroups), false)
	}
}

func BenchmarkWindowRatio(b *testing.B) {
	var w Window
	w.Init(10e9, 0)
	for i := range 10000 {
		w.Record(0, Group(i%ClientGroups), i%4 != 0)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.Ratio(0.5, 20)
	}
}
