package cpushare

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

const msec = time.Millisecond

// newShare returns a share of a quarter of a core on a machine of four cores, with two places. Requests
// may wait for CPU for 2 ms.
func newShare() *Share {
	s := New(0.25, 2*msec)
	s.cores, s.freePlaces = 4, 2
	s.allowed = s.maxAllowed()
	return s
}

// lag tells s each 100 ms, for d, that requests wait for CPU for at least least.
func (s *Share) lag(least, d time.Duration) {
	for range d / (100 * msec) {
		time.Sleep(100 * msec)
		s.Observe(least, 100*msec)
	}
}

// compute takes a turn of p, and computes for d.
func (s *Share) compute(t *testing.T, w Work, p Party, d time.Duration) {
	turn, err := s.Acquire(w, p, time.Now().Add(time.Hour))
	if err != nil {
		t.Error(err)
		return
	}
	time.Sleep(d)
	turn.Release()
}

// loop computes in turns of d until stop is set, on n goroutines.
func (s *Share) loop(t *testing.T, all *sync.WaitGroup, stop *atomic.Bool, w Work, p Party, d time.Duration, n int) {
	for range n {
		all.Go(func() {
			for !stop.Load() {
				s.compute(t, w, p, d)
			}
		})
	}
}

func (s *Share) seconds() (sum float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.counts {
		sum += n.seconds
	}
	return sum
}

func TestWorkGetsAQuarterOfACoreWhileRequestsWaitAndAllThatIsIdleOtherwise(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newShare()
		var all sync.WaitGroup
		var stop atomic.Bool
		s.loop(t, &all, &stop, ClientHandshake, 1, msec, 50)
		s.loop(t, &all, &stop, AdminHandshake, 2, msec, 50)
		used := func(least, d time.Duration) float64 {
			before := s.seconds()
			s.lag(least, d)
			return s.seconds() - before
		}
		testsupport.Between(t, used(0, 10*time.Second), 19.9, 20.001, "without lag the works used %v s of CPU in 10 s, want 20: all of two places")
		used(3*msec, time.Second)
		testsupport.Between(t, used(3*msec, 10*time.Second), 2.45, 2.55, "while requests wait, the works used %v s in 10 s, want 2.5")
		used(2*msec, 2*time.Second)
		testsupport.Between(t, used(2*msec, 10*time.Second), 19.9, 20.001, "2 s later the works used %v s in 10 s, want 20")
		stop.Store(true)
		all.Wait()
		testsupport.Equal(t, s.freePlaces, 2, "%d places are free in the end")
	})
}

// One party floods the share with costly works. Another party, and the cheap works of the same party,
// wait for a few of its works only.
func TestAFloodOfOnePartyDelaysOthersByAFewOfItsWorks(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newShare()
		attacker := PartyOf(netip.MustParseAddr("192.0.2.1"))
		var all sync.WaitGroup
		var stop atomic.Bool
		s.loop(t, &all, &stop, ClientHandshake, attacker.Costly(), msec, 200)
		s.lag(10*msec, 5*time.Second)
		all.Go(func() {
			for !stop.Load() {
				s.lag(10*msec, 100*msec)
			}
		})
		for name, p := range map[string]Party{"another party": PartyOf(netip.MustParseAddr("198.51.100.1")), "the same party": attacker} {
			var longest time.Duration
			for range 100 {
				began := time.Now()
				s.compute(t, ClientHandshake, p, 100*time.Microsecond)
				longest = max(longest, time.Since(began))
				time.Sleep(20 * msec)
			}
			// The flood has eight queues. At worst, each does one work of 1 ms first, which takes 4 ms.
			testsupport.True(t, longest <= 40*msec, "%s waited for %v, want at most 40 ms", name, longest)
		}
		stop.Store(true)
		all.Wait()
	})
}

// Dials and scrapes need no place, and do not wait at all while the CPU is idle.
func TestDialsWaitForNoPlace(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newShare()
		var held []Turn
		for range 2 {
			turn, err := s.Acquire(ClientHandshake, 1, time.Now())
			testsupport.NoError(t, err)
			held = append(held, turn)
		}
		go s.compute(t, ClientHandshake, 1, msec) // waits
		synctest.Wait()
		for _, w := range []Work{SSPHandshake, Scrape} {
			turn, err := s.Acquire(w, 1, time.Now())
			testsupport.NoError(t, err)
			turn.Release()
		}
		for _, w := range []Work{ClientHandshake, AdminHandshake, Decode} {
			_, err := s.Acquire(w, 2, time.Now().Add(msec))
			testsupport.ErrorIs(t, err, os.ErrDeadlineExceeded, "a work without a place: %v")
			testsupport.Equal(t, s.counts[w].timeouts, 1, "%[3]s: %[1]d timeouts", w)
		}
		gone := make(chan struct{})
		time.AfterFunc(msec, func() { close(gone) })
		_, err := s.acquire(Decode, 2, time.Now().Add(time.Hour), gone)
		testsupport.ErrorIs(t, err, net.ErrClosed, "a work whose peer has gone: %v")
		testsupport.Equal(t, s.counts[Decode].timeouts, 1, "%d timeouts")
		testsupport.Equal(t, s.queues.Active(), 1, "%d queues have waiting works")
		for _, turn := range held {
			turn.Release()
		}
		time.Sleep(10 * msec)
		testsupport.Equal(t, s.queues.Active(), 0, "%d queues have waiting works")
	})
}

func TestAPauseCostsNothingAndASuspendedMachineLittle(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newShare()
		turn, err := s.Acquire(Scrape, 1, time.Now())
		testsupport.NoError(t, err)
		for range 3 {
			time.Sleep(2 * msec)
			turn.Pause()
		}
		turn.Release()
		testsupport.Between(t, s.seconds(), 0.006, 0.0060001, "the work used %v s")
		s.compute(t, Scrape, 1, time.Hour)
		testsupport.Between(t, s.seconds(), 0.106, 0.1060001, "with a suspended one the works used %v s")
		turn.Release()
		testsupport.Between(t, s.seconds(), 0.106, 0.1060001, "a turn that was released twice was paid twice: %v s")
	})
}

func TestPartiesAreNetworks(t *testing.T) {
	of := func(a string) Party { return PartyOf(netip.MustParseAddr(a)) }
	testsupport.True(t, of("192.0.2.1") == of("192.0.2.254") && of("192.0.2.1") == of("::ffff:192.0.2.9"), "addresses of a /24 are different parties")
	testsupport.True(t, of("192.0.2.1") != of("192.0.3.1"), "different /24 are one party")
	testsupport.True(t, of("2001:db8:1::1") == of("2001:db8:1:ffff::1") && of("2001:db8:1::1") != of("2001:db8:2::1"), "an IPv6 party is not a /48")
	unknown := PartyOf(netip.Addr{})
	testsupport.True(t, unknown == PartyOf(netip.Addr{}), "clients of a Unix socket are different parties")
}

func TestWithoutAShareNothingWaits(t *testing.T) {
	var s *Share
	turn, err := s.Acquire(Decode, 1, time.Time{})
	testsupport.NoError(t, err)
	turn.Pause()
	turn.Release()
}

// The turn of a work comes at the moment of its deadline.
func TestATurnThatComesAtTheDeadlineIsNotLost(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newShare()
		var turns [2]Turn
		for i := range turns {
			turns[i], _ = s.startOrQueue(ClientHandshake, 1)
		}
		_, waiting := s.startOrQueue(ClientHandshake, 2)
		turns[0].Release()
		turn, err := s.cancelWait(ClientHandshake, waiting, os.ErrDeadlineExceeded)
		testsupport.NoError(t, err)
		turn.Release()
		turns[1].Release()
		testsupport.Equal(t, s.freePlaces, 2, "%d places are free in the end")
	})
}

// Random works begin, give up and end, while the share is bounded and while it is not. In the end no place is held.
func TestSharesLoseNoPlaceAndNoWaiter(t *testing.T) {
	for seed := range uint64(3) {
		testsupport.Bubble(t, func(t *testing.T) {
			s := newShare()
			var all sync.WaitGroup
			var computing atomic.Int32
			for i := range 40 {
				all.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					for range 50 {
						w := Work(r.IntN(int(works)))
						turn, err := s.Acquire(w, Party(r.IntN(5)), time.Now().Add(time.Duration(r.IntN(200))*msec))
						if errors.Is(err, os.ErrDeadlineExceeded) {
							continue
						}
						if w.needsPlace() {
							testsupport.AtMost(t, computing.Add(1), 2, "%d works compute at once, want at most 2")
						}
						time.Sleep(time.Duration(r.IntN(5000)) * time.Microsecond)
						if w.needsPlace() {
							computing.Add(-1)
						}
						turn.Release()
						time.Sleep(time.Duration(r.IntN(50)) * msec)
					}
				})
			}
			ended := make(chan struct{})
			go func() { all.Wait(); close(ended) }()
			for n := 0; ; n++ {
				select {
				case <-ended:
				default:
					s.lag(time.Duration(n/10%2*5)*msec, 100*msec)
					continue
				}
				break
			}
			testsupport.Equal(t, s.freePlaces, 2, "%d places are free in the end")
			testsupport.Equal(t, s.queues.Active(), 0, "%d queues have waiting works in the end")
		})
	}
}
