package pool

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// course drives a machine by events, without a Pool, and writes its actions as text.
type course struct {
	t      testing.TB
	k      machine
	now    time.Time
	addrs  []exchange.Address
	places []*lease // of the requests, by their number; nil = none
	waits  map[*waiter]int
	dials  []dialOrder // under way, oldest first
	names  map[*member]int
	a      string // the endpoint that eject ejected
}

func newCourse(t testing.TB, endpoints int, change func(*Options)) *course {
	o := testOptions()
	o.Endpoints = nil
	c := &course{t: t, now: time.Now(), addrs: addresses(endpoints), waits: make(map[*waiter]int), names: make(map[*member]int)}
	for i := range c.addrs {
		c.addrs[i].Name = c.addrs[i].Host
		o.Endpoints = append(o.Endpoints, balancer.Options{Name: c.addrs[i].Host, Weight: 1})
	}
	change(&o)
	c.k.newWaiter = newWaiter
	c.k.init(o, func() time.Time { return c.now })
	c.actions()
	return c
}

// arrive is a request that arrives. Its number is that of the requests before it.
func arrive(c *course) {
	l, w, err := c.k.take(&exchange.Exchange{Wanted: exchange.Wanted{Deadline: c.now.Add(time.Hour)}}, false, c.now)
	testsupport.NoError(c.t, err)
	if w != nil {
		c.waits[w] = len(c.places)
	}
	c.places = append(c.places, l)
}

// giveBack returns the place of request n.
func giveBack(n int) func(*course) {
	return func(c *course) {
		m := c.places[n].m
		c.k.giveBack(m, time.Millisecond)
	}
}

// opened ends the oldest dial with a connection.
func opened(c *course) { c.endDial(nil) }

// refused ends the oldest dial with an error.
func refused(c *course) { c.endDial(errRefused) }

func (c *course) endDial(err error) {
	o := c.dials[0]
	c.dials = c.dials[1:]
	to, failed := c.k.lookedUp(o.to, c.addrs, nil, c.k.governor.lookup.failures, c.now)
	testsupport.NoError(c.t, failed)
	r := dialOutcome{to: to, reached: to, err: err}
	if err == nil {
		o.m.conn, o.m.protocol = &closableConn{nullConn: nullConn{protocol: exchange.HTTP1, places: 1}}, exchange.HTTP1
		o.m.addr, o.m.ep = to.addr, to.endpoint
		c.names[o.m] = len(c.names)
	}
	c.k.dialOver(o, r, c.now)
}

// closed ends the close of a connection.
func closed(c *course) {
	c.k.closeEnded()
}

// after lets time pass until an alarm.
func after(d time.Duration) func(*course) {
	return func(c *course) {
		c.now = c.now.Add(d)
		c.k.growDue()
		c.k.reviveDue()
	}
}

// fail makes five attempts of different clients fail at the endpoint of request n, whose place has been
// returned, and ejects the endpoint. The first turn is random, so its name is "a" in the text of actions.
func fail(n int) func(*course) {
	return func(c *course) {
		e := c.places[n].m.ep
		c.a = e.Name
		for i := range 5 {
			ejects := c.k.conns.endpoints.Ended(e.Endpoint, exchange.Failure, rates.Group(i), c.now)
			testsupport.MustEqual(c.t, ejects, i == 4, "after failure %[2]d the balancer ejects: %[1]v", i)
		}
		c.k.changes.apply(e, c.k.conns.endpoints.Eject(e.Endpoint, c.now))
	}
}

// lost closes the connection of request n, as the SSP does while the request is in progress.
func lost(n int) func(*course) {
	return func(c *course) {
		m := c.places[n].m
		m.conn.(*closableConn).why = exchange.ClosedByPeer
		c.k.connChanged(m, c.now)
	}
}

// closableConn is a nullConn that may be closed.
type closableConn struct {
	nullConn
	why exchange.CloseReason
}

func (c *closableConn) CloseReason() exchange.CloseReason { return c.why }

// probed ends request n, which was a probe.
func probed(n int, r exchange.Result) func(*course) {
	return func(c *course) {
		m := c.places[n].m
		testsupport.True(c.t, c.places[n].probe, "request %d was no probe", n)
		c.k.giveBack(m, time.Millisecond)
		c.k.probeOver(m, r, c.now)
	}
}

func maxConns(n int) func(*course) {
	return func(c *course) {
		o := c.k.opts
		o.MaxConns, o.MaxIdle = n, n
		c.k.setOptions(o, c.now)
	}
}

// actions takes the actions of the last event, and writes them.
func (c *course) actions() string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	do := c.k.do
	c.k.do, c.k.conns.hasActions = actions{notEmpty: do.notEmpty}, false
	for w := do.results; w != nil; w = w.next {
		switch n := c.waits[w]; {
		case w.result.lease != nil:
			c.places[n] = w.result.lease
			add("%d gets a place on %d", n, c.names[w.result.lease.m])
		case errors.Is(w.result.err, errRefused):
			add("%d fails", n)
		default:
			add("%d is refused", n)
		}
	}
	for w := do.wakes; w != nil; w = w.nextWake {
		w.waking = false
	}
	for _, o := range do.dials {
		to := "any"
		if o.to.endpoint != nil {
			to = o.to.endpoint.Name
		}
		add("dial %s", to)
	}
	c.dials = append(c.dials, do.dials...)
	for _, m := range do.closes {
		add("close %d", c.names[m])
	}
	for _, e := range do.events {
		if e.Ejected {
			add("report the ejection of %s", e.Endpoint)
		} else {
			add("report the return of %s", e.Endpoint)
		}
	}
	if !do.growAt.IsZero() {
		add("grow later")
	}
	if !do.reviveAt.IsZero() {
		add("revive after %v", do.reviveAt.Sub(c.now).Round(time.Second))
	}
	text := strings.Join(all, ", ")
	if c.a != "" {
		text = strings.ReplaceAll(text, c.a, "a")
	}
	return text
}

// step is one event, and the actions that it must lead to.
type step struct {
	event   func(*course)
	actions string
}

func (c *course) run(steps []step) {
	c.t.Helper()
	for i, s := range steps {
		s.event(c)
		c.k.settle(c.now)
		wantInvariants(c.t, &c.k)
		testsupport.MustEqual(c.t, c.actions(), s.actions, "step %[2]d led to %[1]q", i)
	}
}

func TestABurstOnAColdPool(t *testing.T) {
	c := newCourse(t, 1, func(o *Options) { o.Protocol, o.MaxConns, o.MaxIdle, o.MaxDials = exchange.Unknown, 4, 4, 2 })
	c.run([]step{
		{arrive, "dial any"},
		{arrive, ""}, // one dial shows the protocol
		{arrive, ""},
		{opened, "0 gets a place on 0, dial any, dial any"},
		{giveBack(0), "1 gets a place on 0"},
		{opened, "2 gets a place on 1"},
		{opened, ""}, // it becomes idle
		{arrive, ""},
		{giveBack(1), ""},
	})
	testsupport.Equal(t, c.names[c.places[3].m], 2, "request 3 got connection %d, want the one that opened last")
}

func TestAnEndpointThatFailsAndComesBack(t *testing.T) {
	c := newCourse(t, 2, func(o *Options) { o.MaxConns, o.MaxIdle = 4, 4 })
	c.run([]step{
		{arrive, "dial any"},
		{arrive, "dial any"},
		{opened, "0 gets a place on 0"},
		{opened, "1 gets a place on 1"},
		{giveBack(0), ""},
		{fail(0), "close 0, report the ejection of a, revive after 5s"},
		{closed, ""},
		{arrive, "dial any"}, // to the other endpoint
		{giveBack(1), "2 gets a place on 1"},
		{opened, ""},
		{after(5 * time.Second), "dial a"},
		{refused, "revive after 5s"}, // the probe's dial fails
		{after(5 * time.Second), "dial a"},
		{opened, ""},
		{arrive, ""}, // the probe
		{probed(3, exchange.Failure), "close 3, revive after 5s"},
		{closed, ""},
		{after(5 * time.Second), "dial a"},
		{opened, ""},
		{arrive, ""},
		{probed(4, exchange.Success), "report the return of a"},
	})
}

func TestAnEndpointComesBackToABusyPool(t *testing.T) {
	c := newCourse(t, 2, func(o *Options) { o.MaxConns, o.MaxIdle = 2, 2 })
	c.run([]step{
		{arrive, "dial any"},
		{arrive, "dial any"},
		{opened, "0 gets a place on 0"},
		{opened, "1 gets a place on 1"},
		{arrive, ""},
		{arrive, ""},
		{arrive, ""},
		{fail(0), "report the ejection of a, revive after 5s"},
		{giveBack(0), "close 0"},
		{closed, "dial any"},
		{opened, "2 gets a place on 2"},
		{after(5 * time.Second), ""}, // the probe needs room
		{giveBack(1), "close 1"},
		{closed, "dial a"},
		{opened, "3 gets a place on 3"},
		{probed(3, exchange.Success), "4 gets a place on 3, report the return of a"},
		{arrive, ""},
		{giveBack(2), "5 gets a place on 2"}, // each endpoint has its share
	})
}

// One connection closes for the endpoint. While its close or a dial is under way, places go to waiters.
func TestABusyPoolMakesRoomOnce(t *testing.T) {
	c := newCourse(t, 2, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxDials = 3, 3, 1 })
	c.run([]step{
		{arrive, "dial any"},
		{opened, "0 gets a place on 0"},
		{fail(0), "report the ejection of a, revive after 5s"},
		{giveBack(0), "close 0"},
		{closed, ""},
		{arrive, "dial any"},
		{opened, "1 gets a place on 1"},
		{arrive, "dial any"},
		{opened, "2 gets a place on 2"},
		{arrive, "dial any"},
		{arrive, ""},
		{arrive, ""},
		{after(5 * time.Second), ""},         // the only dial is under way
		{giveBack(1), "3 gets a place on 1"}, // max_dials prevents a dial too: no room is made
		{opened, "4 gets a place on 3"},
		{arrive, ""},
		{giveBack(2), "close 2"},
		{giveBack(3), "5 gets a place on 1"}, // one connection closes already
		{closed, "dial a"},
	})
}

func TestAReloadThatHalvesMaxConns(t *testing.T) {
	c := newCourse(t, 1, func(o *Options) { o.MaxConns, o.MaxIdle = 4, 4 })
	c.run([]step{
		{arrive, "dial any"},
		{arrive, "dial any"},
		{arrive, "dial any"},
		{arrive, "dial any"},
		{opened, "0 gets a place on 0"},
		{opened, "1 gets a place on 1"},
		{opened, "2 gets a place on 2"},
		{opened, "3 gets a place on 3"},
		{arrive, ""},
		{arrive, ""},
		{arrive, ""},
		{arrive, ""},
		{arrive, ""},
		{maxConns(2), ""},
		{giveBack(0), "close 0"},
		{closed, ""},
		{giveBack(1), "close 1"},
		{closed, ""},
		{giveBack(2), "4 gets a place on 2"},
		{giveBack(3), "5 gets a place on 3"},
		{giveBack(4), "6 gets a place on 2"},
		{giveBack(5), "7 gets a place on 3"},
		{giveBack(6), "8 gets a place on 2"},
		{giveBack(7), ""},
		{maxConns(1), "close 3"},
	})
}

func TestADialThatFailsTwiceLeavesTheWaiterToTheOpenConnection(t *testing.T) {
	c := newCourse(t, 1, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxDials = 2, 2, 1 })
	c.run([]step{
		{arrive, "dial any"},
		{opened, "0 gets a place on 0"},
		{arrive, "dial any"},
		{refused, "dial any"}, // the first failure may be an accident, and a connection serves
		{refused, "grow later"},
		{giveBack(0), "1 gets a place on 0"},
	})
}

func TestTheLastConnectionClosesWhileADialIsUnderWay(t *testing.T) {
	c := newCourse(t, 1, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxDials = 2, 2, 1 })
	c.run([]step{
		{arrive, "dial any"},
		{opened, "0 gets a place on 0"},
		{arrive, "dial any"},
		{arrive, ""},
		{lost(0), ""},
		{giveBack(0), ""},
		{refused, "1 fails, 2 fails"}, // no connection is left that serves them
	})
}

// The return of an exclusive connection for which no request waits is the most frequent event; see connections.clock.
func TestAPlaceThatComesBackReadsTheClockOnlyIfARequestWaits(t *testing.T) {
	c := newCourse(t, 1, func(o *Options) { o.MaxConns, o.MaxIdle = 1, 1 })
	c.run([]step{{arrive, "dial any"}, {opened, "0 gets a place on 0"}})
	reads := 0
	c.k.conns.clock = func() time.Time { reads++; return c.now }
	back := func(n int) int {
		reads = 0
		giveBack(n)(c)
		c.k.settle(time.Time{}) // as Pool.release
		return reads
	}
	testsupport.Equal(t, back(0), 0, "while no request waits, it read the clock %d times")
	c.run([]step{{arrive, ""}, {arrive, ""}})
	testsupport.AtLeast(t, back(1), 1, "while a request waits, it read the clock %d times")
}
