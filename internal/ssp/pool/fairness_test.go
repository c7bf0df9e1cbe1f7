package pool

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// Hashes of keys whose requests have no queue in common; see package fairqueue.
const (
	noisy = 0x0123456789abcdef
	quiet = 1
)

// askAs starts a request of a key.
func askAs(t testing.TB, p *Pool, key uint64, deadline time.Duration) *request {
	return askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(deadline)}, FairKey: key})
}

// oneFairPlace returns a pool with one place, which a request of no waiting key holds.
func oneFairPlace(t testing.TB, change func(*Options)) (*Pool, *request) {
	p := start(t, newFakeSSP(t), func(o *Options) {
		o.MaxConns, o.Fair, o.PendingTimeout = 1, true, sec
		if change != nil {
			change(o)
		}
	})
	return p, acquire(t, p)
}

// A key that fills its eight queues waits behind itself.
func TestPlacesGoToQueuesInTurn(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p, held := oneFairPlace(t, func(o *Options) { o.MaxPending = 100 })
		var all []*request
		for range 32 {
			all = append(all, askAs(t, p, noisy, sec))
		}
		other := askAs(t, p, quiet, sec)
		testsupport.Equal(t, p.Snapshot().FairQueues, 9, "requests wait in %d queues, want 8 of a key and one of another")
		held.do()
		synctest.Wait()
		turns := 0
		for ; !other.ended(); turns++ {
			r := all[slices.IndexFunc(all, (*request).ended)]
			r.do()
			all = slices.DeleteFunc(all, func(other *request) bool { return other == r })
			synctest.Wait()
		}
		testsupport.AtMost(t, turns, 8, "%d requests came before the other key's, want at most 8")
		useAll(append(all, other))
		testsupport.Equal(t, p.Snapshot().FairQueues, 0, "requests wait in %d queues")
	})
}

// A newcomer takes the place of the newest request of the key that has most in the queue. A newcomer of that key
// is refused itself.
func TestFullQueueRefusesTheKeyWithMostRequests(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p, held := oneFairPlace(t, func(o *Options) { o.MaxPending = 16 })
		var all []*request
		for range 16 { // two in each of its queues
			all = append(all, askAs(t, p, noisy, sec))
			pass(msec)
		}
		if e := askAs(t, p, noisy, sec).wantErr(exchange.PendingFull, 0); !strings.Contains(e.Detail, "16 of 16 requests waiting in the queue, and no other key had more requests there; see pool.max_conns, server.fairness.key and pool.max_pending") {
			t.Errorf("the error is %q", e.Detail)
		}
		other := askAs(t, p, quiet, sec)
		other.wantWaits()
		all[15].wantErr(exchange.PendingFull, msec)
		testsupport.Equal(t, counted(p, "fairness_evicted_total"), 1, "%d requests were evicted")
		for _, r := range all[:15] {
			r.wantWaits()
		}
		held.do()
		useAll(append(all[:15], other))
	})
}

// In a queue of eight places, each of a key's requests waits in a fair queue of its own. The key has most requests
// all the same, and makes room for newcomers until they have as many.
func TestSmallFullQueueRefusesTheKeyWithMostRequests(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p, held := oneFairPlace(t, func(o *Options) { o.MaxPending = 8 })
		var all, others []*request
		for range 8 {
			all = append(all, askAs(t, p, noisy, sec))
		}
		testsupport.Equal(t, p.Snapshot().FairQueues, 8, "the key's requests wait in %d queues")
		for n := range 4 {
			others = append(others, askAs(t, p, quiet, sec))
			others[n].wantWaits()
			all[7-n].wantErr(exchange.PendingFull, 0)
		}
		askAs(t, p, quiet, sec).wantErr(exchange.PendingFull, 0)
		testsupport.Equal(t, counted(p, "fairness_evicted_total"), 4, "%d requests were evicted")
		held.do()
		useAll(append(all[:4], others...))
	})
}

// The first request has its place on a stale connection, so it comes before the others again. A request that was
// not processed does too.
func TestRequestsThatHadAPlaceComeBeforeFairOnes(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p, held := oneFairPlace(t, nil)
		waits := askAs(t, p, quiet, sec)
		resent := askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec), Resent: true}, FairKey: quiet})
		held.do()
		resent.wantConn(0, 0)
		testsupport.True(t, resent.ex.Ticket != 0, "the place of a request that is sent again costs its key nothing")
		waits.wantWaits()
		resent.do()
		waits.wantConn(0, 0)
		waits.place.Release(waits.ex) // costs nothing
	})
}

func TestRequestsThatLeaveFairQueuesLeaveNothing(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p, _ := oneFairPlace(t, func(o *Options) { o.PendingTimeout = 30 * msec })
		ctx, cancel := context.WithCancel(t.Context())
		gone := askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec), Context: ctx}, FairKey: noisy})
		late, short := askAs(t, p, quiet, sec), askAs(t, p, noisy+1, 10*msec)
		cancel()
		gone.wantErr(exchange.Cancelled, 0)
		pass(50 * msec)
		short.wantErr(exchange.Deadline, 10*msec)
		late.wantErr(exchange.PendingTimeout, 30*msec)
		testsupport.Equal(t, p.Snapshot().FairQueues, 0, "requests wait in %d queues")
	})
}

// A full queue may refuse a request that dials were expected to serve. Then they serve another one.
func TestFullQueueRefusesARequestThatWaitsForADial(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxPending, o.Fair, o.PendingTimeout = 16, 1, true, sec }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		var all []*request
		for range 16 { // two in each queue of the key, each with its dial
			all = append(all, askAs(t, p, noisy, sec))
		}
		pending, other := askAs(t, p, quiet, sec), askAs(t, p, quiet, sec)
		all[15].wantErr(exchange.PendingFull, 0)
		s := p.Snapshot()
		testsupport.True(t, s.Pending == 1 && s.WaitingForDials == 16, "%d requests are pending and %d wait for dials, want 1 and 16", s.Pending, s.WaitingForDials)
		useAll(append(all[:15], pending, other))
	})
}

// One key's requests hold their place ten times as long. It gets a place as often as another key's ten.
func TestKeysPayForTheTimeOfTheirPlaces(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxPending, o.Fair, o.PendingTimeout = 4, 200, true, 100*sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.do = func(c *fakeConn, ex *exchange.Exchange) error {
			time.Sleep(ex.UsualTimeout)
			return nil
		}
		ends := time.Now().Add(10 * sec)
		var mu sync.Mutex
		served := map[uint64]int{}
		for range 60 {
			for key, takes := range map[uint64]time.Duration{noisy: 100 * msec, quiet: 10 * msec} {
				go func() {
					for time.Now().Before(ends) {
						ex := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(100 * sec), UsualTimeout: takes}, FairKey: key}
						place, err := p.Acquire(ex)
						if err != nil {
							t.Error(err)
							return
						}
						place.Do(ex)
						mu.Lock()
						served[key]++
						mu.Unlock()
					}
				}()
			}
		}
		time.Sleep(time.Until(ends) + 20*sec)
		synctest.Wait()
		// 40 s of places are 200 slow requests and 2000 fast ones.
		slow, fast := served[noisy], served[quiet]
		testsupport.True(t, slow >= 150 && fast >= 1500, "%d slow and %d fast requests were served", slow, fast)
	})
}

// A reload turns fair queueing on and off while requests wait.
func TestFairnessChangesWhileRequestsWait(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p, held := oneFairPlace(t, func(o *Options) { o.Fair = false })
		all := []*request{askAs(t, p, noisy, sec), askAs(t, p, noisy, sec), askAs(t, p, quiet, sec)}
		for range 2 {
			for _, queues := range []int{3, 0} {
				changeOptions(p, func(o *Options) { o.Fair = queues > 0 })
				testsupport.Equal(t, p.Snapshot().FairQueues, queues, "requests wait in %d queues")
			}
		}
		changeOptions(p, func(o *Options) { o.Fair = true })
		held.do()
		synctest.Wait()
		changeOptions(p, func(o *Options) { o.Fair = false }) // while a place is lent
		useAll(all)
	})
}

type countingKeyer int

func (k *countingKeyer) FairKey() uint64 {
	*k++
	return 0
}

// The key may cost a scan of the body, so only requests that wait need one.
func TestOnlyRequestsThatWaitNeedTheirKey(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p, held := oneFairPlace(t, nil)
		held.do()
		keyer := new(countingKeyer)
		askWithKey := func() *request {
			return askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec), Keyer: keyer}})
		}
		first := askWithKey()
		testsupport.Equal(t, *keyer, 0, "a request that found a place told its key: %v")
		second := askWithKey()
		first.do()
		synctest.Wait()
		testsupport.True(t, *keyer == 1 && second.ex.FairKey != 0 && second.ex.Ticket != 0, "a request that waited told its key %d times: %x; the ticket is %d", *keyer, second.ex.FairKey, second.ex.Ticket)
	})
}

// A dial that a stale connection makes necessary does not wait for the key. The pool checks after each event that
// nothing is due.
func TestAKeyIsAskedForAfterAStaleConnectionWasSettled(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MinIdle, o.Fair, o.PendingTimeout = 1, 1, true, sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p).do()
		s.conn(0).unsolicited = true
		r := askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec), Keyer: new(countingKeyer)}})
		pass(10 * msec)
		r.wantConn(1, 10*msec)
		r.do()
		testsupport.Equal(t, p.Snapshot().Stale, 1, "%d stale connections counted")
	})
}

// The first queue of a key pays for each place, as long as places that were not used cost nothing.
func TestPlaceThatIsNotUsedCostsNothing(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.Fair, o.PendingTimeout = 1, true, sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		var tickets []exchange.Ticket
		for n := range 3 {
			held := acquire(t, p)
			s.conn(n).unsolicited = true // the request that waits finds its connection closed, and waits again
			r := askAs(t, p, noisy, sec)
			held.do()
			pass(10 * msec)
			tickets = append(tickets, r.ex.Ticket)
			r.place.Release(r.ex)
		}
		testsupport.True(t, tickets[0] != 0 && tickets[1] == tickets[0] && tickets[2] == tickets[0], "the queues %v pay, want one", tickets)
	})
}
