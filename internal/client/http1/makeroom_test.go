package http1

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/cpushare"
)

// room is a set of unfinished connections without sockets.
type room struct {
	t *testing.T
	unfinished
	of map[*unfinishedConn]progress
}

// networks returns n addresses of different groups.
func networks(n int) (all []netip.Addr) {
	seen := make(map[cpushare.Party]bool)
	for i := 0; len(all) < n; i++ {
		peer := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})
		if group := cpushare.PartyOf(peer) % 256; !seen[group] {
			seen[group] = true
			all = append(all, peer)
		}
	}
	return all
}

func (r *room) add(peer netip.Addr, p progress) *unfinishedConn {
	r.t.Helper()
	one := new(unfinishedConn)
	r.insert(one, peer, time.Now())
	r.of[one] = p
	time.Sleep(time.Millisecond) // in a bubble: each is younger than those before
	return one
}

// wantTaken checks that a new connection from peer closes the connection want, to make room.
func (r *room) wantTaken(what string, peer netip.Addr, want *unfinishedConn) {
	r.t.Helper()
	got := r.take(peer, func(one *unfinishedConn) progress { return r.of[one] })
	testsupport.True(r.t, got == want, "%s: %p made room, want %p", what, got, want)
}

// The client with the most connections makes room, though another client's connection is older.
func TestTheLargestGroupMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many, other, third := networks(3)[0], networks(3)[1], networks(3)[2]
		r := &room{t: t, of: make(map[*unfinishedConn]progress)}
		r.wantTaken("nothing is open", other, nil)
		old := r.add(other, silent)
		var all []*unfinishedConn
		for range 4 {
			all = append(all, r.add(many, silent))
		}
		r.wantTaken("its oldest", many, all[0])
		r.wantTaken("its next one", third, all[1])

		for _, one := range all {
			r.of[one] = greets
		}
		third1, third2 := r.add(third, greets), r.add(third, greets)
		all = append(all, r.add(many, greets), r.add(many, greets))
		r.wantTaken("greeting ones of a client that has more", other, all[2])
		r.wantTaken("none for a client of the same group", many, nil)
		r.wantTaken("none for a client that would have as many", third, nil)
		r.add(third, greets)
		r.wantTaken("none for a client that would have more", third, nil)

		time.Sleep(time.Second)
		r.wantTaken("an old silent one of another client, for any", many, old)
		testsupport.Equal(t, r.count, 6, "%d connections are left")
		testsupport.True(t, third1.place != nil && third2.place != nil, "connections of a small group made room")
	})
}

// A connection on which a request has arrived stays, and the next connection of its group makes room.
func TestAConnectionWithARequestMakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, other := networks(2)[0], networks(2)[1]
		r := &room{t: t, of: make(map[*unfinishedConn]progress)}
		r.add(peer, heard)
		second := r.add(peer, silent)
		r.add(peer, heard)
		r.wantTaken("the silent one", other, second)
		r.wantTaken("only requests are left", other, nil)
	})
}

// A look costs the same for any number of connections.
func TestMakingRoomLooksAtAConstantNumberOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, other := networks(2)[0], networks(2)[1]
		r := &room{t: t, of: make(map[*unfinishedConn]progress)}
		for range 1000 {
			r.add(peer, heard)
		}
		looks := 0
		got := r.take(other, func(*unfinishedConn) progress { looks++; return heard })
		testsupport.True(t, got == nil && looks == 8, "%d looks, %p", looks, got)
	})
}

// The address of a PROXY header, and not that of the load balancer, decides about the group.
func TestAConnectionJoinsTheGroupOfItsPROXYHeader(t *testing.T) {
	addrs := networks(3)
	s := &Server{}
	var conns []*Conn
	for i := range 3 {
		c := &Conn{server: s}
		s.clients.add(c)
		conns = append(conns, c)
		s.clients.setPeer(c, addrs[i%2])
	}
	u := &s.clients.unfinished
	got := fmt.Sprint(u.count, u.groupOf(addrs[0]).Len(), u.groupOf(addrs[1]).Len(), u.groupOf(netip.Addr{}).Len())
	testsupport.Equal(t, got, "3 2 1 0", "all, and of each group: %s")
	s.clients.remove(conns[0])
	testsupport.Equal(t, u.groupOf(addrs[0]).Len(), 1, "%d are left")
}

// Clients that have made requests keep their idle connections while a group of clients has more unfinished
// connections than the limit, and the newcomer is of that group, or may be: its PROXY header is unread.
func TestAnIdleConnectionMakesRoomForGroupsWithinTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many, other, third := networks(3)[0], networks(3)[1], networks(3)[2]
		r := &room{t: t, of: make(map[*unfinishedConn]progress)}
		for _, peer := range []netip.Addr{many, many, many, other} {
			r.add(peer, heard)
		}
		unread := newcomer{unknown: true}
		for _, tt := range []struct {
			what  string
			n     newcomer
			idle  netip.Addr
			limit int
			may   bool
		}{
			{"of a small group", newcomer{peer: other}, third, 2, true},
			{"of a group at the limit", newcomer{peer: many}, third, 3, true},
			{"of a group over the limit", newcomer{peer: many}, third, 2, false},
			{"of a group over the limit, as the idle connection", newcomer{peer: many}, many, 2, true},
			{"over a Unix socket", newcomer{}, third, 2, true},
			{"with an unread PROXY header", unread, third, 2, false},
			{"with an unread PROXY header, while no group is over the limit", unread, third, 3, true},
			{"with an unread PROXY header, for an idle connection of the largest group", unread, many, 2, true},
		} {
			testsupport.Equal(t, r.mayCloseIdle(tt.n, tt.idle, tt.limit), tt.may, "%[2]s: %[1]v", tt.what)
		}
	})
}
