package dial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestAddressesAreKeptForThirtySeconds(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1", 5*time.Millisecond)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		time.Sleep(resultFresh - time.Nanosecond)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		n.wantLookups(t, "a.example", 1)
		time.Sleep(time.Nanosecond)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		synctest.Wait()
		n.wantLookups(t, "a.example", 2)
	}, "http://a.example")
}

func TestManyCallersShareOneLookup(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1 2001:db8::1", 100*time.Millisecond)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example ([2001:db8::1]:80)") })
		}
		wg.Wait()
		n.wantLookups(t, "a.example", 1)
	}, "http://a.example")
}

func TestTwoPortsOfOneHostShareOneLookup(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1", 0)
		wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example (192.0.2.1:81)")
		n.wantLookups(t, "a.example", 1)
	}, "http://a.example", "http://a.example:81")
}

func TestNoRequestWaitsWhileANameIsLookedUpAgain(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1", 0)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		time.Sleep(resultFresh)
		n.set("a.example", "192.0.2.2", time.Second)
		began := time.Now()
		for range 10 {
			wantAddrs(t, d, "a.example (192.0.2.1:80)")
		}
		testsupport.Equal(t, time.Since(began), 0, "callers waited for %v")
		time.Sleep(time.Second)
		synctest.Wait()
		wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example (192.0.2.2:80)") // two more look-ups may bring the first one again
		n.wantLookups(t, "a.example", 2)
	}, "http://a.example")
}

func TestTheSliceIsTheSameWhileTheAddressesAre(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1 192.0.2.2 2001:db8::1", 0)
		first, err := d.Addresses(t.Context())
		testsupport.NoError(t, err)
		kept := slices.Clone(first)
		time.Sleep(resultFresh)
		n.set("a.example", "2001:db8::1 192.0.2.2 192.0.2.1", 0)
		_, err = d.Addresses(t.Context())
		testsupport.NoError(t, err)
		synctest.Wait()
		n.wantLookups(t, "a.example", 2)
		second, _ := d.Addresses(t.Context())
		testsupport.True(t, &second[0] == &first[0] && len(second) == len(first), "a rotated result made a new slice")
		n.set("a.example", "2001:db8::2", 0)
		n.lookUpAgain(t, d, 3)
		wantAddrs(t, d, "a.example ([2001:db8::2]:80)")
		testsupport.True(t, slices.Equal(first, kept), "a slice that a caller keeps was changed")
	}, "http://a.example")
}

func TestTheLastGoodAddressesSurviveFailedLookups(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1", 0)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		n.set("a.example", "!no such host", 0)
		time.Sleep(resultFresh)
		const hour = 3600
		for range hour {
			wantAddrs(t, d, "a.example (192.0.2.1:80)")
			time.Sleep(time.Second)
		}
		// The pauses are 1, 2, 4, 8, 16, and then 30 s, ±20 %. The test asks once a second.
		w := n.warnings()
		testsupport.Between(t, len(w), hour/37, hour/24+10, "%d look-ups failed in an hour")
		n.wantLookups(t, "a.example", len(w)+1)
		testsupport.True(t, strings.Contains(w[0], "lookup a.example: no such host; its last good result stays in use"), "the first warning is %q", w[0])
		n.set("a.example", "192.0.2.2", 0)
		time.Sleep(maxLookupPause)
		n.lookUpAgain(t, d, 3)
		wantAddrs(t, d, "a.example (192.0.2.2:80)")
	}, "http://a.example")
}

func TestALookupWithoutAddressesFails(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1", 0)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		n.set("a.example", "", 0)
		time.Sleep(resultFresh)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		synctest.Wait()
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		testsupport.Equal(t, len(n.warnings()), 1, "%d look-ups failed")
	}, "http://a.example")
}

func TestAFailedFirstLookupIsMadeAgainByTheNextCaller(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "!no such host", 0)
		for want := 1; want <= 3; want++ {
			_, err := d.Addresses(t.Context())
			e := checkError(t, err, exchange.ConnectFailed, "a.example")
			testsupport.True(t, kind(e) == "dns" && strings.Contains(e.Error(), "no such host"), "%v is counted as %s", e, kind(e))
			n.wantLookups(t, "a.example", want)
		}
		w := n.warnings()
		testsupport.True(t, len(w) == 0, "warned of an error that was returned: %q", w)
		n.set("a.example", "192.0.2.1", 0)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
	}, "http://a.example")
}

func TestTheFirstLookupIsWaitedForWithinTheContext(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1", time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := d.Addresses(ctx)
		checkError(t, err, exchange.ConnectFailed, "cancelled", "a.example")
		testsupport.True(t, errors.Is(err, context.DeadlineExceeded) && time.Since(began) == 100*time.Millisecond, "%v after %v", err, time.Since(began))
	}, "http://a.example")
}

func TestTheFirstLookupIsWaitedForWithinTheConnectTimeout(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1", time.Second)
		began := time.Now()
		_, err := d.Addresses(t.Context())
		e := checkError(t, err, exchange.ConnectFailed, "a.example", "250ms", "timeouts.connect")
		testsupport.True(t, kind(e) == "dns" && exchange.IsTimeout(e) && time.Since(began) == connectTimeout, "%v after %v, counted as %s", e, time.Since(began), kind(e))
		// The look-up continued, and serves the next request.
		time.Sleep(time.Second)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		n.wantLookups(t, "a.example", 1)
	}, "http://a.example")
}

func TestALookupThatNeverEndsIsEnded(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1", time.Hour)
		_, err := d.Addresses(t.Context())
		checkError(t, err, exchange.ConnectFailed)
		time.Sleep(lookupTimeout)
		synctest.Wait()
		failed, _ := d.resolver.failedLookups(time.Now())
		testsupport.Equal(t, len(failed), 1, "%d look-ups failed")
		n.set("a.example", "192.0.2.1", 0)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
	}, "http://a.example")
}

func TestOldAddressesAreLookedUpAgainBeforeTheyAreUsed(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1", 0)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		time.Sleep(resultOld)
		n.set("a.example", "192.0.2.2", 10*time.Millisecond)
		wantAddrs(t, d, "a.example (192.0.2.2:80)")

		// If that fails, or takes too long, the old address is used.
		time.Sleep(resultOld)
		n.set("a.example", "!refused", 10*time.Millisecond)
		wantAddrs(t, d, "a.example (192.0.2.2:80)")
		n.set("a.example", "192.0.2.3", 0)
		time.Sleep(resultFresh)
		wantAddrs(t, d, "a.example (192.0.2.2:80)")
		synctest.Wait()
		wantAddrs(t, d, "a.example (192.0.2.3:80)")

		time.Sleep(resultOld)
		n.set("a.example", "192.0.2.4", time.Second)
		began := time.Now()
		wantAddrs(t, d, "a.example (192.0.2.3:80)")
		testsupport.Equal(t, time.Since(began), connectTimeout, "waited for %v")
	}, "http://a.example")
}

func TestOneDeadNameDoesNotHoldUpTheOthers(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1", 10*time.Millisecond)
		n.set("b.example", "192.0.2.2", time.Hour)
		n.set("c.example", "!no such host", 0)
		began := time.Now()
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		testsupport.Equal(t, time.Since(began), 10*time.Millisecond, "waited for %v")
		for range 300 {
			began := time.Now()
			wantAddrs(t, d, "a.example (192.0.2.1:80)")
			testsupport.MustEqual(t, time.Since(began), 0, "waited for %v")
			time.Sleep(time.Second)
		}
		w := strings.Join(n.warnings(), "\n")
		testsupport.True(t, hasAll(w, "lookup b.example: ", "lookup c.example: no such host; only other endpoints are in use"), "warned %q", w)
		n.set("b.example", "192.0.2.2", 0)
		time.Sleep(lookupTimeout + 2*maxLookupPause) // a look-up under way, and the pause after it
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		synctest.Wait()
		wantAddrs(t, d, "a.example (192.0.2.1:80)", "b.example (192.0.2.2:80)")
	}, "http://a.example", "http://b.example", "http://c.example")
}

func TestIPAddressesAreNeverLookedUp(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		want := []string{"192.0.2.7 (192.0.2.7:80)", "2001:db8::7 ([2001:db8::7]:8080)"}
		wantAddrs(t, d, want...)
		time.Sleep(time.Hour)
		wantAddrs(t, d, want...)
		testsupport.Equal(t, len(n.lookups), 0, "%d names were looked up")
	}, "http://192.0.2.7", "http://[2001:db8::7]:8080")
}

func TestRefusedAddressesAreLeftOut(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "169.254.169.254 192.0.2.1 fe80::1%eth0 ::ffff:192.0.2.2", 0)
		wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example (192.0.2.2:80)")
		synctest.Wait()
		testsupport.Equal(t, d.stats.addrsRefused.Load(), 2, "%d addresses were refused")
		failed, _ := d.resolver.failedLookups(time.Now())
		testsupport.Equal(t, len(failed), 0, "%d look-ups failed")
		w := n.warnings()
		testsupport.True(t, len(w) == 1 && strings.Contains(w[0], "a.example") && strings.Contains(w[0], "link-local"), "warned %q", w)
	}, "http://a.example")
}

func TestALookupWithRefusedAddressesAloneFailsAndSaysWhy(t *testing.T) {
	for _, tt := range []struct{ result, kind string }{
		{"169.254.169.254", "a link-local"},
		{"fe80::a9fe:a9fe", "a link-local"},
		{"0.0.0.0", "an unspecified"},
		{"224.0.0.1", "a multicast"},
	} {
		resolve(t, func(t *testing.T, n *names, d *Dialer) {
			n.set("a.example", tt.result, 0)
			_, err := d.Addresses(t.Context())
			e := checkError(t, err, exchange.ConnectFailed, "a.example")
			s := e.Error()
			testsupport.True(t, kind(e) == "dns" && strings.Contains(s, tt.result+", "+tt.kind+" address"), "%s is counted as %s", s, kind(e))
		}, "http://a.example")
	}
}

func TestAHugeListOfAddressesIsCut(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		var result strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&result, "10.0.%d.%d ", i/250, i%250)
		}
		n.set("a.example", result.String(), 0)
		got, err := d.Addresses(t.Context())
		testsupport.NoError(t, err)
		s := &d.stats
		testsupport.True(t, len(got) == maxAddrsPerName && s.addrsBeyond.Load() == 1000-maxAddrsPerName, "%d addresses of 1000, %d counted as too many", len(got), s.addrsBeyond.Load())
	}, "http://a.example")

	var urls []string
	for i := range 100 {
		urls = append(urls, fmt.Sprintf("http://h%d.example", i))
	}
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		for i := range urls {
			n.set(fmt.Sprintf("h%d.example", i), "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5", 0)
		}
		_, err := d.Addresses(t.Context())
		testsupport.NoError(t, err)
		synctest.Wait()
		got, err := d.Addresses(t.Context())
		testsupport.NoError(t, err)
		testsupport.True(t, len(got) <= maxAddrs && len(got) >= len(urls), "%d addresses of %d endpoints, at most %d are wanted", len(got), len(urls), maxAddrs)
	}, urls...)
}

func TestCloseEndsLookupsUnderWay(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1", time.Hour)
		began := time.Now()
		go d.Close()
		_, err := d.Addresses(t.Context())
		checkError(t, err, exchange.ConnectFailed)
		_, err = d.Addresses(t.Context())
		checkError(t, err, exchange.ConnectFailed, "out of service")
		d.Close()
		testsupport.Equal(t, time.Since(began), 0, "closed after %v")
	}, "http://a.example")
}

func TestTheSystemsResolverIsTheDefault(t *testing.T) {
	ends, err := exchange.ParseEndpoints([]string{"http://localhost:1234"})
	testsupport.NoError(t, err)
	d := newDialer(t, Options{Endpoints: ends, Mode: Auto, ConnectTimeout: time.Minute})
	addrs, err := d.Addresses(t.Context())
	testsupport.NoError(t, err)
	for _, a := range addrs {
		testsupport.True(t, a.Host == "localhost" && a.AddrPort.Addr().IsLoopback() && a.AddrPort.Port() == 1234, "localhost is at %v", a)
	}
}

func TestANameWhoseLookupFailsIsNamedWhileItIsUsed(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		use := func(lasts time.Duration) {
			for range int(lasts / time.Second) {
				_, _ = d.Addresses(t.Context())
				time.Sleep(time.Second)
			}
		}
		want := func(what string, since time.Time, hosts ...string) {
			t.Helper()
			failed, names := d.resolver.failedLookups(time.Now())
			var got []string
			for _, f := range failed {
				if got = append(got, f.Host); f.Since != since || f.Err == nil || f.Kept != (f.Host == "a.example") {
					t.Errorf("%s: %+v, want since %v", what, f, since)
				}
			}
			testsupport.True(t, slices.Equal(got, hosts) && names == 2, "%s: %v of %d names fail, want %v of 2", what, got, names, hosts)
		}
		n.set("a.example", "192.0.2.1", 0)
		n.set("b.example", "192.0.2.2", 0)
		use(time.Second)
		want("at the start", time.Time{})
		n.set("a.example", "!no such host", 0)
		use(resultFresh)
		began := time.Now().Add(-time.Second)
		want("after the first failure", began, "a.example")
		use(time.Hour)
		want("after an hour", began, "a.example")
		time.Sleep(2 * time.Minute)
		want("unused", time.Time{})
		n.set("a.example", "192.0.2.1", 0)
		use(2 * time.Second)
		want("after the recovery", time.Time{})
	}, "http://a.example", "http://a.example:81", "http://b.example", "http://192.0.2.9")
}

// If only the query for one family fails, the addresses of the other family must not replace it: this
// machine may be unable to reach them.
func TestAFamilyWhoseLookupFailsKeepsItsAddresses(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1 2001:db8::1", 0)
		wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example ([2001:db8::1]:80)")
		n.set("a.example/ip4", "!server misbehaving", 0)
		n.set("a.example/ip6", "2001:db8::2", 0)
		time.Sleep(resultFresh)
		for range 600 {
			addrs, err := d.Addresses(t.Context())
			testsupport.NoError(t, err)
			testsupport.MustTrue(t, slices.Contains(sorted(addrs), "a.example (192.0.2.1:80)"), "the addresses are %v", addrs)
			time.Sleep(time.Second)
		}
		wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example ([2001:db8::2]:80)")
		w := n.warnings()
		// The pauses are 1, 2, 4, 8, 16, and then 20 s, ±20 % except the last.
		testsupport.Between(t, len(w), 30, 36, "%d look-ups failed in 10 minutes")
		testsupport.Equal(t, w[0], "lookup a.example: server misbehaving (ip4 only); its last good result stays in use", "warned %q")
		all, _ := d.resolver.failedLookups(time.Now())
		testsupport.True(t, len(all) == 1 && all[0].Kept, "failing: %+v", all)

		n.set("a.example/ip4", "192.0.2.1", 0)
		time.Sleep(resultFresh)
		n.lookUpAgain(t, d, 1)
		all, _ = d.resolver.failedLookups(time.Now())
		testsupport.True(t, len(all) == 0, "failing: %+v", all)
	}, "http://a.example")
}

// A resolver that responds to one query, and never to the other, must not delay the first dial until it times out.
func TestTheFirstFamilyWaitsFiftyMillisecondsForTheOther(t *testing.T) {
	for slow, first := range map[string]string{"ip6": "a.example (192.0.2.1:80)", "ip4": "a.example ([2001:db8::1]:80)"} {
		resolve(t, func(t *testing.T, n *names, d *Dialer) {
			n.set("a.example", "192.0.2.1 2001:db8::1", 10*time.Millisecond)
			n.set("a.example/"+slow, "192.0.2.1 2001:db8::1", time.Second)
			began := time.Now()
			wantAddrs(t, d, first)
			testsupport.Equal(t, time.Since(began), 60*time.Millisecond, "waited for %v")
			time.Sleep(time.Second)
			synctest.Wait()
			wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example ([2001:db8::1]:80)") // the late answer counts
			n.wantLookups(t, "a.example", 1)
			testsupport.Equal(t, len(n.warnings()), 0, "%d look-ups failed")
		}, "http://a.example")
	}
}

// A family that never gets a response, and never had an address, costs nothing and is no failure. A query that
// failed is sent again soon, since the other family's addresses may have no route.
func TestAFamilyThatNeverGetsAResponseIsNoFailure(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example/ip4", "192.0.2.1", 0)
		n.set("a.example/ip6", "", time.Hour)
		began := time.Now()
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		testsupport.Equal(t, time.Since(began), 50*time.Millisecond, "waited for %v")
		for range 600 {
			began := time.Now()
			wantAddrs(t, d, "a.example (192.0.2.1:80)")
			testsupport.MustEqual(t, time.Since(began), 0, "waited for %v")
			time.Sleep(time.Second)
		}
		testsupport.Equal(t, len(n.warnings()), 0, "%d look-ups failed")
		testsupport.Between(t, n.lookups["a.example"], 29, 60, "%d look-ups in ten minutes")
	}, "http://a.example")
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example/ip4", "!server misbehaving", 0)
		n.set("a.example/ip6", "2001:db8::1", 0)
		wantAddrs(t, d, "a.example ([2001:db8::1]:80)")
		n.set("a.example/ip4", "192.0.2.1", 0)
		time.Sleep(1200 * time.Millisecond) // a second, +20 %
		wantAddrs(t, d, "a.example ([2001:db8::1]:80)")
		synctest.Wait()
		wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example ([2001:db8::1]:80)")
	}, "http://a.example")
}

// A response without addresses of a family is valid: the family loses its addresses. A name that has no addresses
// in any family keeps them all.
func TestAFamilyMayLoseAllItsAddresses(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		n.set("a.example", "192.0.2.1 2001:db8::1", 0)
		wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example ([2001:db8::1]:80)")
		n.set("a.example", "!no such host", 0)
		n.lookUpAgain(t, d, 1)
		for range 10 {
			time.Sleep(maxLookupPause)
			n.lookUpAgain(t, d, 1)
		}
		wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example ([2001:db8::1]:80)")
		n.set("a.example/ip4", "192.0.2.1", 0)
		time.Sleep(maxLookupPause)
		n.lookUpAgain(t, d, 2)
		wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example ([2001:db8::1]:80)")
		n.lookUpAgain(t, d, 1)
		wantAddrs(t, d, "a.example (192.0.2.1:80)")
		testsupport.True(t, slices.Equal(n.changes, []string{"a.example came [] went [2001:db8::1]"}), "changes: %q", n.changes)
	}, "http://a.example")
}

// A name server may return two of four addresses in turn. That must not replace all connections at each look-up.
func TestAnAddressIsGoneAfterThreeLookupsWithoutIt(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		all := []string{"a.example (192.0.2.1:80)", "a.example (192.0.2.2:80)", "a.example (192.0.2.3:80)", "a.example (192.0.2.4:80)"}
		n.set("a.example", "192.0.2.1 192.0.2.2", 0)
		wantAddrs(t, d, all[:2]...)
		n.set("a.example", "192.0.2.3 192.0.2.4", 0)
		n.lookUpAgain(t, d, 1)
		first := wantAddrs(t, d, all...)
		for _, subset := range []string{"192.0.2.1 192.0.2.3", "192.0.2.2 192.0.2.4", "192.0.2.1 192.0.2.2", "192.0.2.2 192.0.2.3", "192.0.2.1 192.0.2.4", "192.0.2.1 192.0.2.2"} {
			n.set("a.example", subset, 0)
			n.lookUpAgain(t, d, 1)
			testsupport.True(t, &wantAddrs(t, d, all...)[0] == &first[0], "another slice after %s", subset)
		}
		n.lookUpAgain(t, d, 1)
		wantAddrs(t, d, "a.example (192.0.2.1:80)", "a.example (192.0.2.2:80)", "a.example (192.0.2.4:80)")
		n.lookUpAgain(t, d, 1)
		wantAddrs(t, d, all[:2]...)
		want := []string{"a.example came [192.0.2.3 192.0.2.4] went []", "a.example came [] went [192.0.2.3]", "a.example came [] went [192.0.2.4]"}
		for i := range n.changes {
			n.changes[i] = strings.Replace(n.changes[i], "[192.0.2.4 192.0.2.3]", "[192.0.2.3 192.0.2.4]", 1)
		}
		testsupport.True(t, slices.Equal(n.changes, want), "changes: %q, want %q", n.changes, want)
		last := d.AddressChanges()
		testsupport.MustEqual(t, len(last), 1, "%d names have changed")
		testsupport.True(t, last[0].Host == "a.example" && len(last[0].InUse) == 2 && fmt.Sprint(last[0].Went) == "[192.0.2.4]", "the last change is %+v", last[0])
	}, "http://a.example")
}

// Addresses that the last look-up lacks do not displace those that it has.
func TestTheLastLookupsAddressesGoFirst(t *testing.T) {
	resolve(t, func(t *testing.T, n *names, d *Dialer) {
		list := func(from int) (text string, want []string) {
			for i := from; i < from+maxAddrsPerName; i++ {
				text += fmt.Sprintf("10.0.0.%d ", i)
				want = append(want, fmt.Sprintf("a.example (10.0.0.%d:80)", i))
			}
			return text, want
		}
		before, want := list(0)
		n.set("a.example", before, 0)
		wantAddrs(t, d, want...)
		after, want := list(100)
		n.set("a.example", after, 0)
		n.lookUpAgain(t, d, 1)
		wantAddrs(t, d, want...)
	}, "http://a.example")
}
