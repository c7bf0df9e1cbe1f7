package balancer

import (
	"errors"
	"testing"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// ssp sends requests to the endpoints that its Balancer decides on, all of which have connections.
type ssp struct {
	Balancer
	now    time.Time
	events []Event
}

// names are the endpoints of the tests.
var names = []string{"a", "b", "c", "d"}

// start returns an SSP with an endpoint for each priority. change may be nil.
func start(change func(*Settings), priorities ...int) *ssp {
	s := &ssp{now: time.Unix(1e9, 0)}
	settings := Settings{Ejection: testEjection(), Unhealthy: 3, Healthy: 2}
	for i, p := range priorities {
		settings.Endpoints = append(settings.Endpoints, Options{Name: names[i], Weight: 1, Priority: p})
	}
	if change != nil {
		change(&settings)
	}
	s.Init(s.now)
	s.Set(settings, s.now)
	return s
}

func failsAtB(e string, _ rates.Group) bool { return e == "b" }

// serve sends n requests of 10 clients, one each 10 ms. fails may be nil. serve returns how many
// requests each endpoint had.
func (s *ssp) serve(n int, fails func(endpoint string, client rates.Group) bool) map[string]int {
	served := make(map[string]int)
	for i := range n {
		s.now = s.now.Add(10 * time.Millisecond)
		due, _ := s.DueProbes(s.now)
		for _, e := range due {
			s.SetProbe(e, ProbeReady, s.now)
		}
		d := s.Next("")
		e := d.Turn
		if d.Probe != nil {
			e = d.Probe
			s.SetProbe(e, ProbeSent, s.now)
		} else {
			s.UseTurn()
		}
		served[e.Name]++
		client, result := rates.Group(i/len(s.all)%10), exchange.Success
		if fails != nil && fails(e.Name, client) {
			result = exchange.Failure
		}
		var c Change
		if d.Probe != nil {
			c = s.ProbeEnded(e, result, true, s.now)
		} else if s.Ended(e, result, client, s.now) {
			c = s.Eject(e, s.now)
		}
		s.events = append(s.events, c.Events...)
	}
	return served
}

// states returns the states of all endpoints.
func (s *ssp) states() (all string) {
	for _, e := range s.all {
		all += " " + e.StateName()
	}
	return all[1:]
}

// count returns how many endpoints are in a state.
func (s *ssp) count(state string) (n int) {
	for _, e := range s.all {
		if e.StateName() == state {
			n++
		}
	}
	return n
}

// ejections returns the duration of each ejection.
func (s *ssp) ejections() (lasts []time.Duration) {
	for _, e := range s.events {
		if e.Ejected {
			lasts = append(lasts, e.Lasts)
		}
	}
	return lasts
}

// A client whose requests fail, with most of the load, ejects no endpoint for the others.
func TestFailuresThatAClientProvokesEjectNothing(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"consecutive":   func(s *Settings) { s.Ejection.FailureRatio = 2 },
		"failure_ratio": func(s *Settings) { s.Ejection.Consecutive = 0 },
		"both":          nil,
	} {
		s := start(change, 0, 0)
		s.serve(540, nil) // before the first failure
		for range 600 {
			s.serve(20, func(_ string, client rates.Group) bool { return client == 0 })
		}
		testsupport.Equal(t, len(s.ejections()), 0, "%[2]s: %[1]d ejections", name)
	}
}

// Each ejection of an endpoint that fails again soon after its return lasts longer. Once the endpoint has worked
// for as long as its last ejection, ejections are short again.
func TestFlappingEndpointIsEjectedForLonger(t *testing.T) {
	s := start(nil, 0, 0)
	began := s.now
	s.serve(4000, func(e string, _ rates.Group) bool { // works for a second, fails for a second
		return e == "b" && int(s.now.Sub(began)/time.Second)%2 == 1
	})
	lasts := s.ejections()
	for i := 1; i < len(lasts); i++ {
		testsupport.True(t, lasts[i] > lasts[i-1], "ejections last %v: they do not grow", lasts)
	}
	testsupport.Between(t, len(lasts), 2, 4, "%d ejections in 40 s of flapping: %v", lasts)
	s.serve(9000, nil) // works for 90 s
	s.serve(100, failsAtB)
	lasts = s.ejections()
	testsupport.Equal(t, lasts[len(lasts)-1], 5*time.Second, "after 90 s without a failure an ejection lasts %v, want base_time")
}

// max_ejected bounds the number of ejected endpoints of the last priority, and one endpoint always stays.
func TestMaxEjectedEndpoints(t *testing.T) {
	for _, c := range []struct {
		endpoints int
		share     float64
		want      int
	}{{1, 1, 0}, {2, 0.5, 1}, {2, 0.1, 1}, {2, 1, 1}, {3, 0.5, 1}, {4, 0.5, 2}, {4, 1, 3}, {4, 0.74, 2}} {
		s := start(func(s *Settings) { s.Ejection.MaxEjected = c.share }, make([]int, c.endpoints)...)
		s.serve(200, func(string, rates.Group) bool { return true })
		testsupport.Equal(t, s.count("ejected"), c.want, "%[2]+v: %[1]d endpoints are ejected", c)
	}
	s := start(nil, 0, 0, 0, 1)
	s.serve(200, func(e string, _ rates.Group) bool { return e != "d" })
	testsupport.Equal(t, s.states(), "ejected ejected ejected enabled", "%s, although a later priority serves")
}

// If the health checks of all endpoints fail and no spare works, max_ejected keeps half of the endpoints in use. One
// event reports this.
func TestFailingChecksRespectMaxEjected(t *testing.T) {
	for name, c := range map[string]struct {
		priorities []int
		sick       []string
		out        int
	}{
		"one priority":            {[]int{0, 0, 0, 0}, names, 2},
		"a spare that works":      {[]int{0, 0, 0, 1}, names[:3], 3},
		"a spare that fails too":  {[]int{0, 0, 1}, names[:3], 2},
		"only the spare fails":    {[]int{0, 0, 1}, names[2:3], 1},
		"the only endpoint fails": {[]int{0}, names[:1], 0},
	} {
		s := start(func(s *Settings) { s.Checked = true }, c.priorities...)
		for range 10 {
			for _, e := range s.Endpoints() {
				var err error
				for _, name := range c.sick {
					if name == e.Name {
						err = errors.New("status 500")
					}
				}
				s.events = append(s.events, s.CheckEnded(e, err, s.now).Events...)
			}
		}
		testsupport.Equal(t, s.count("unhealthy"), c.out, "%[2]s: %[1]d endpoints are unhealthy", name)
		testsupport.True(t, len(s.events) == len(c.sick), "%s: events: %+v", name, s.events)
		s.serve(20, nil)
	}
}

func TestDryRunEjectsNothingAndCounts(t *testing.T) {
	s := start(func(s *Settings) { s.Ejection.DryRun = true }, 0, 0)
	testsupport.Equal(t, s.serve(400, failsAtB)["b"], 200, "b got %d of 400 requests")
	testsupport.Equal(t, s.all[1].EjectedFor(s.now), 0, "b is ejected for %v")
	testsupport.True(t, s.states() == "enabled enabled" && len(s.events) == 1 && s.events[0].Ejected && s.events[0].DryRun, "%s, events %+v; want one event of the dry run", s.states(), s.events)
}

// The failures before an ejection do not count after the endpoint's return.
func TestReturnedEndpointIsNotEjectedForOldFailures(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"failure_ratio": func(s *Settings) { s.Ejection.Consecutive, s.Ejection.Window = 0, time.Minute },
		"consecutive":   func(s *Settings) { s.Ejection.FailureRatio = 2 },
	} {
		s := start(change, 0, 0)
		s.serve(100, failsAtB)
		testsupport.MustEqual(t, s.states(), "enabled ejected", "%[2]s: %[1]s", name)
		for range 1000 { // until the probe
			if s.count("ejected") > 0 {
				s.serve(1, nil)
			}
		}
		s.serve(4, failsAtB)
		testsupport.Equal(t, s.states(), "enabled enabled", "%[2]s: %[1]s after two failures", name)
	}
}

// A reload that ends a dry run, or switches ejection off and on, allows an ejection at once.
func TestEjectionBeginsAnewAfterAReload(t *testing.T) {
	for _, dryRun := range []bool{true, false} {
		s := start(func(s *Settings) { s.Ejection.BaseTime, s.Ejection.DryRun = time.Minute, dryRun }, 0, 0)
		s.serve(100, failsAtB)
		testsupport.MustEqual(t, len(s.ejections()), 1, "%d ejections")
		settings := s.settings
		settings.Ejection.Enabled = false
		s.Set(settings, s.now)
		settings.Ejection.Enabled, settings.Ejection.DryRun = true, false
		s.Set(settings, s.now)
		testsupport.MustEqual(t, s.states(), "enabled enabled", "%s after ejection was off")
		s.serve(100, failsAtB)
		testsupport.Equal(t, s.states(), "enabled ejected", "%s, although b fails again")
	}
}
