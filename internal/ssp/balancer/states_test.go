package balancer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

var errCheck = errors.New("status 500")

// which returns the names of the endpoints for which is is true.
func (s *ssp) which(is func(*Endpoint) bool) string {
	var all strings.Builder
	for _, e := range s.all {
		if is(e) {
			all.WriteString(e.Name)
		}
	}
	return all.String()
}

// eject ejects e for 5 s.
func (s *ssp) eject(t *testing.T, e *Endpoint) Change {
	t.Helper()
	for range 4 {
		testsupport.MustTrue(t, !s.Ended(e, exchange.Failure, rates.Ours, s.now), "four failures eject")
	}
	testsupport.MustTrue(t, s.Ended(e, exchange.Failure, rates.Ours, s.now), "five failures do not eject")
	return s.Eject(e, s.now)
}

// a and b have priority 0, c has priority 1.
func TestStatesOfEndpointsDecideWhichGetRequests(t *testing.T) {
	for _, c := range []struct{ a, b, c, active, barred, unneeded, aside string }{
		{"enabled", "enabled", "enabled", "ab", "", "", ""},
		{"draining", "enabled", "enabled", "b", "a", "", ""},
		{"disabled", "enabled", "enabled", "b", "a", "a", ""},
		{"disabled", "draining", "enabled", "c", "ab", "a", ""},
		{"draining", "draining", "draining", "ab", "", "", ""},
		{"disabled", "disabled", "disabled", "ab", "", "", ""},
		{"ejected", "enabled", "enabled", "b", "a", "a", "a"},
		{"unhealthy", "unhealthy", "enabled", "c", "ab", "ab", "ab"},
		{"ejected", "unhealthy", "ejected", "ab", "", "", ""},
		{"ejected", "disabled", "draining", "a", "bc", "b", ""},
		{"unreachable", "enabled", "enabled", "b", "", "", ""},
		{"unreachable", "unreachable", "enabled", "c", "", "", ""},
		{"unreachable", "unreachable", "unreachable", "ab", "", "", ""},
		{"ejected", "ejected", "unreachable", "ab", "", "", ""},
		{"ejected", "unreachable", "unreachable", "a", "", "", ""},
		{"unreachable", "ejected", "disabled", "b", "c", "c", ""},
		{"unreachable", "disabled", "disabled", "a", "bc", "bc", ""},
		{"disabled, unreachable", "disabled", "disabled", "b", "", "", ""},
	} {
		s := start(nil, 0, 0, 1)
		for i, state := range []string{c.a, c.b, c.c} {
			e := s.all[i]
			switch state {
			case "ejected":
				e.ejected = true
			case "unhealthy":
				e.checks.unhealthy = true
			case "unreachable":
				s.SetUnreachable(e, true, s.now)
			case "disabled, unreachable":
				s.SetUnreachable(e, true, s.now)
				s.SetEndpointState(e, Disabled, s.now)
			default:
				hand, err := ParseState(state)
				testsupport.NoError(t, err)
				s.SetEndpointState(e, hand, s.now)
			}
		}
		change := s.rebuild(s.now)
		testsupport.True(t, change.Turns, "%v: no change", c)
		got := c
		got.active, got.barred, got.unneeded, got.aside = s.which((*Endpoint).Active), s.which((*Endpoint).Barred), s.which((*Endpoint).Unneeded), s.which((*Endpoint).Excluded)
		testsupport.Equal(t, got, c, "the endpoints are %v")
		testsupport.Equal(t, s.Refusing(), s.which((*Endpoint).Enabled) == "", "%[2]v: refusing is %[1]v", c)
		for _, e := range s.DialOrder(true, noConns) {
			testsupport.True(t, !e.Barred(), "%v: dials may go to %s", c, e.Name)
		}
		for range 4 {
			s.UseTurn()
			testsupport.True(t, s.Next("").Turn.Active(), "%v: it is the turn of %s", c, s.Next("").Turn.Name)
		}
	}
}

func TestTheStateOfTheSSPRefusesRequests(t *testing.T) {
	s := start(func(s *Settings) { s.Checked = true }, 0, 0)
	for _, state := range []State{Draining, Disabled, Enabled} {
		s.SetState(state, s.now)
		testsupport.True(t, s.State() == state && s.Refusing() == (state != Enabled) && s.Checks(s.all[0]) == (state == Enabled), "%v: refusing is %v", state, s.Refusing())
	}
	s.SetEndpointState(s.all[0], Draining, s.now)
	testsupport.True(t, !s.Checks(s.all[0]) && s.Checks(s.all[1]), "checks of a draining endpoint count")
	if _, err := ParseState("off"); err == nil || err.Error() != `state "off" must be one of enabled, draining, disabled` {
		t.Error(err)
	}
}

// Exclusions counts endpoints that are excluded while others serve.
func TestExclusionsCountsEndpointsThatGoOut(t *testing.T) {
	s := start(nil, 0, 0)
	s.SetEndpointState(s.all[1], Disabled, s.now)
	testsupport.Equal(t, s.Exclusions(), 0, "after a change by hand, Exclusions is %d")
	s.SetEndpointState(s.all[1], Enabled, s.now)
	s.eject(t, s.all[0])
	s.rebuild(s.now)
	testsupport.Equal(t, s.Exclusions(), 1, "after an ejection, Exclusions is %d")
}

// A round of a and b, of weights 10 and 10, is one of 10 and 1 when b returns.
func TestReturnedEndpointGetsItsShareSlowly(t *testing.T) {
	s := start(func(s *Settings) { s.SlowStart = 10 * time.Second }, 0, 0)
	s.SetEndpointState(s.all[1], Enabled, s.now)
	testsupport.True(t, s.SetUnreachable(s.all[1], false, s.now).Turns == false && s.Share(s.all[1], 1) == 0.5, "b, which always served, has a share of %v", s.Share(s.all[1], 1))
	for name, comesBack := range map[string]func(s *ssp, b *Endpoint){
		"by hand": func(s *ssp, b *Endpoint) {
			s.SetEndpointState(b, Disabled, s.now)
			s.SetEndpointState(b, Enabled, s.now)
		},
		"reachable": func(s *ssp, b *Endpoint) {
			s.SetUnreachable(b, true, s.now)
			s.SetUnreachable(b, false, s.now)
		},
		"by a probe": func(s *ssp, b *Endpoint) {
			s.eject(t, b)
			s.SetProbe(b, ProbeSent, s.now)
			s.ProbeEnded(b, exchange.Success, false, s.now)
		},
		"by checks": func(s *ssp, b *Endpoint) {
			for _, err := range []error{errCheck, errCheck, errCheck, nil, nil} {
				s.CheckEnded(b, err, s.now)
			}
		},
	} {
		s := start(func(s *Settings) { s.SlowStart, s.Checked = 10*time.Second, true }, 0, 0)
		b := s.all[1]
		comesBack(s, b)
		for _, step := range []struct {
			after time.Duration
			share float64
		}{{0, 1.0 / 11}, {3 * time.Second, 3.0 / 13}, {2 * time.Second, 5.0 / 15}, {4999 * time.Millisecond, 9.0 / 19}, {time.Millisecond, 0.5}, {time.Second, 0.5}} {
			s.now = s.now.Add(step.after)
			s.ContinueSlowStart(s.now)
			testsupport.Equal(t, s.Share(b, 1), step.share, "%[2]s, %[3]v later: b's share is %[1]v", name, step.after)
		}
		s.Served(b, 5, 0)
		s.ContinueSlowStart(s.now)
		testsupport.Equal(t, b.ahead, 5, "%[2]s: after the slow start the turns continue, but b is ahead by %[1]d", name)
		s.SetWeight(b, 3, s.now)
		testsupport.True(t, s.Share(b, 100) == 75 && b.Weight() == 3 && b.ConfiguredWeight() == 1, "%s: with a weight of 3, b's share of 100 is %v", name, s.Share(b, 100))
		s.SetWeight(b, 0, s.now)
		testsupport.Equal(t, s.Share(b, 100), 50, "%[2]s: with the configured weight, b's share of 100 is %[1]v", name)
	}
}

// A pool that replaces another one inherits what an operator set, ejections and results of checks.
func TestANewPoolInheritsWhatIsKnownOfEndpoints(t *testing.T) {
	old := start(func(s *Settings) { s.Checked = true }, 0, 0, 0, 1)
	old.SetState(Draining, old.now)
	old.SetEndpointState(old.all[0], Disabled, old.now)
	old.SetWeight(old.all[0], 7, old.now)
	old.eject(t, old.all[1])
	for range 3 {
		old.CheckEnded(old.all[3], errCheck, old.now)
	}
	testsupport.MustEqual(t, old.states(), "disabled ejected enabled unhealthy", "%s")
	for name, c := range map[string]struct {
		change func(*Settings)
		want   string
	}{
		"the same settings": {func(s *Settings) { s.Checked = true }, "disabled ejected enabled unhealthy"},
		"no checks":         {nil, "disabled ejected enabled enabled"},
		"a dry run":         {func(s *Settings) { s.Checked, s.Ejection.DryRun = true, true }, "disabled enabled enabled unhealthy"},
		"no ejection":       {func(s *Settings) { s.Checked, s.Ejection.Enabled = true, false }, "disabled enabled enabled unhealthy"},
		"other endpoints":   {func(s *Settings) { s.Endpoints[0].Name, s.Endpoints[1].Name = "x", "y" }, "enabled enabled enabled enabled"},
	} {
		s := start(c.change, 0, 0, 0, 1)
		testsupport.True(t, s.Inherit(old.Memory(), s.now).Turns, "%s: no change", name)
		testsupport.Equal(t, s.states(), c.want, "%[2]s: %[1]s", name)
		testsupport.Equal(t, s.State(), Draining, "%[2]s: the SSP is %[1]v", name)
		if e := s.all[1]; e.Ejected() {
			due, _ := s.DueProbes(s.now)
			testsupport.True(t, len(due) == 1 && due[0] == e && s.all[0].Weight() == 7, "%s: the probes of %v are due", name, due)
		}
	}
}

func TestAnEjectionTellsWhyAndEndsWithItsProbe(t *testing.T) {
	s := start(nil, 0, 0)
	a, b := s.all[0], s.all[1]
	change := s.eject(t, b)
	want := Event{Endpoint: "b", Ejected: true, Lasts: 5 * time.Second, InARow: 1, Requests: 5, Failures: 5, FailuresInARow: 5}
	testsupport.True(t, change.DrainEndpoint && change.Turns && len(change.Events) == 1 && change.Events[0] == want, "%+v, want %+v", change, want)
	testsupport.True(t, b.EjectedFor(s.now) == 5*time.Second && b.EjectedFor(s.now.Add(time.Minute)) == 0 && a.EjectedFor(s.now) == 0, "ejected for %v", b.EjectedFor(s.now))
	testsupport.True(t, len(s.DialFailed(b, s.now).Events) == 0 && len(s.Eject(b, s.now).Events) == 0, "an ejected endpoint is ejected again")
	due, next := s.DueProbes(s.now)
	testsupport.True(t, len(due) == 0 && next.Equal(s.now.Add(5*time.Second)), "due %v, next %v", due, next)
	s.now = s.now.Add(5 * time.Second)
	due, next = s.DueProbes(s.now)
	testsupport.MustTrue(t, len(due) == 1 && due[0] == b && next.IsZero(), "due %v, next %v", due, next)
	s.SetProbe(b, ProbeDials, s.now)
	testsupport.True(t, b.Probing() && !b.Unneeded() && s.Next("").Probe == nil, "while the pool dials, %+v", s.Next(""))
	s.SetProbe(b, ProbeReady, s.now)
	for range 2 {
		testsupport.True(t, s.Next("").Probe == b, "the next request is not the probe")
	}
	s.SetProbe(b, ProbeSent, s.now)
	testsupport.True(t, s.Next("").Probe == nil && b.Probe() == ProbeSent, "a second request is the probe")
	s.ProbeEnded(b, exchange.Neutral, true, s.now) // a client went away
	testsupport.True(t, s.Next("").Probe == b, "after a neutral probe there is no other one")
	s.SetProbe(b, ProbeSent, s.now)
	s.ProbeEnded(b, exchange.Neutral, false, s.now)
	testsupport.Equal(t, b.Probe(), NoProbe, "without a connection, the probe is %v")
	s.SetProbe(b, ProbeSent, s.now)
	s.now = s.now.Add(time.Second)
	testsupport.True(t, s.ProbeEnded(b, exchange.Failure, true, s.now).DrainEndpoint, "a failed probe leaves the connections")
	testsupport.Equal(t, b.EjectedFor(s.now), 4*time.Second, "5 s after the begin of a failed probe of 1 s, the next one is due in %v")
	testsupport.Equal(t, len(s.ProbeEnded(b, exchange.Success, true, s.now).Events), 0, "a probe that has ended ends again: %d events")
	s.ProbeLater(b, s.now.Add(time.Minute))
	due, next = s.DueProbes(s.now)
	testsupport.True(t, len(due) == 0 && next.Equal(s.now.Add(time.Minute)), "due %v, next %v", due, next)

	s.SetProbe(b, ProbeSent, s.now) // its request panics
	s.now = s.now.Add(11 * time.Minute)
	due, _ = s.DueProbes(s.now)
	testsupport.Equal(t, len(due), 0, "after 11 minutes %d probes are due")
	s.now = s.now.Add(time.Nanosecond)
	due, _ = s.DueProbes(s.now)
	testsupport.Equal(t, len(due), 1, "after more than 11 minutes %d probes are due")
	s.SetProbe(b, ProbeSent, s.now)
	change = s.ProbeEnded(b, exchange.Success, true, s.now)
	testsupport.True(t, !b.Ejected() && len(change.Events) == 1 && change.Events[0] == Event{Endpoint: "b"}, "%+v", change)
	for range 4 {
		testsupport.Equal(t, len(s.DialFailed(b, s.now).Events), 0, "four failed dials: %d events")
	}
	testsupport.Equal(t, len(s.DialFailed(b, s.now).Events), 1, "five failed dials: %d events")
}

// The probe of an endpoint with health checks is a check.
func TestChecksEndAnEjection(t *testing.T) {
	s := start(func(s *Settings) { s.Checked = true }, 0, 0)
	b := s.all[1]
	s.eject(t, b)
	s.SetProbe(b, ProbeIsCheck, s.now)
	testsupport.True(t, !b.Probing(), "a check needs no connection of the pool")
	s.now = s.now.Add(time.Second)
	s.CheckEnded(b, errCheck, s.now)
	testsupport.True(t, b.EjectedFor(s.now) == 4*time.Second && b.Probe() == NoProbe && errors.Is(b.CheckError(), errCheck), "ejected for %v, %v", b.EjectedFor(s.now), b.CheckError())
	s.SetProbe(b, ProbeIsCheck, s.now)
	change := s.CheckEnded(b, nil, s.now)
	testsupport.True(t, !b.Ejected() && b.CheckError() == nil && len(change.Events) == 1 && change.Events[0] == Event{Endpoint: "b"}, "%+v", change)
	var events []CheckChange
	for i, err := range []error{errCheck, errCheck, nil, errCheck, errCheck, errCheck, nil, errCheck, nil, nil} {
		change := s.CheckEnded(b, err, s.now)
		for _, e := range change.Events {
			events = append(events, e.Check)
			testsupport.True(t, change.Turns && change.DrainEndpoint == (i == 5), "check %d: %+v", i, change)
		}
	}
	testsupport.True(t, len(events) == 2 && events[0] == ChecksFail && events[1] == ChecksPass, "three failures, then two successes in a row: %v", events)
}

// While the checks of an ejected endpoint fail, the checks alone decide.
func TestAnUnhealthyEndpointIsNotEjected(t *testing.T) {
	s := start(func(s *Settings) { s.Checked = true }, 0, 0)
	a, b := s.all[0], s.all[1]
	s.eject(t, b)
	for i, want := range []string{"ejected", "ejected", "unhealthy"} {
		s.CheckEnded(b, errCheck, s.now)
		testsupport.Equal(t, b.StateName(), want, "after %[2]d checks: %[1]s", i+1)
	}
	for range 4 { // requests that were in progress
		s.Ended(b, exchange.Failure, rates.Ours, s.now)
	}
	var last Change
	for range 3 {
		last = s.CheckEnded(a, errCheck, s.now)
	}
	testsupport.True(t, len(last.Events) == 1 && last.Events[0].Check == ChecksFailIn && !last.Turns && a.StateName() == "enabled", "max_ejected: %+v", last)
	for range 2 {
		last = s.CheckEnded(a, nil, s.now)
	}
	testsupport.True(t, len(last.Events) == 1 && last.Events[0].Check == ChecksPass && !last.Turns, "a, which was never out: %+v", last)
	for range 2 {
		s.CheckEnded(b, nil, s.now)
	}
	testsupport.True(t, b.StateName() == "enabled" && !s.Ended(b, exchange.Failure, rates.Ours, s.now), "the first failure after the return ejects: %s", b.StateName())
}

func TestWhatEjects(t *testing.T) {
	ended := func(s *ssp, results string) (failing bool) {
		for _, r := range results {
			result := map[rune]exchange.Result{'+': exchange.Success, '-': exchange.Failure, '.': exchange.Neutral}[r]
			failing = s.Ended(s.all[0], result, rates.Ours, s.now)
		}
		return failing
	}
	for _, c := range []struct {
		change  func(*Settings)
		results string
		want    bool
	}{
		{nil, "-----", true},
		{nil, "--.---", true},
		{nil, "----+-", false},
		{func(s *Settings) { s.Ejection.Consecutive = 1 }, "-", true},
		{func(s *Settings) { s.Ejection.Consecutive = 0 }, "-------------------", false},
		{func(s *Settings) { s.Ejection.Consecutive = 0 }, "--------------------", true}, // 20 are min_requests
		{func(s *Settings) { s.Ejection.Consecutive = 0 }, "++++++++++----------", true}, // half is failure_ratio
		{func(s *Settings) { s.Ejection.Consecutive = 0 }, "+++++++++++---------", false},
		{func(s *Settings) { s.Ejection.Enabled = false }, "-----", false},
		{func(s *Settings) { s.Endpoints = s.Endpoints[:1] }, "-----", false},
	} {
		testsupport.Equal(t, ended(start(c.change, 0, 0), c.results), c.want, "%[2]s: failing is %[1]v", c.results)
	}
	s := start(nil, 0, 0)
	settings := s.settings
	settings.Ejection.Enabled = false
	s.Set(settings, s.now)
	testsupport.True(t, !ended(s, "-----"), "failures count although a reload has switched ejection off")
}

// The first ejection lasts for base_time, the second in a row twice as long, the third three times as long, up to
// max_time. The next ejection is a first one again if the endpoint has worked for as long as its last ejection lasted,
// and for at least one window.
func TestHowLongAnEjectionLasts(t *testing.T) {
	s := start(func(s *Settings) { s.Ejection.MaxTime = 12 * time.Second }, 0, 0)
	b := s.all[1]
	for _, c := range []struct{ works, lasts time.Duration }{{0, 5}, {1, 10}, {9, 12}, {11, 12}, {12, 5}, {9, 10}, {10, 5}} {
		s.now = s.now.Add(c.works * time.Second)
		testsupport.Equal(t, s.eject(t, b).Events[0].Lasts, c.lasts*time.Second, "after %[2]d s it lasts %[1]v", c.works)
		s.now = s.now.Add(c.lasts * time.Second)
		s.SetProbe(b, ProbeSent, s.now)
		for range 4 { // requests that were in progress
			s.Ended(b, exchange.Failure, rates.Ours, s.now)
		}
		s.ProbeEnded(b, exchange.Success, true, s.now)
	}
}

func TestARequestAvoidsAnEndpointWhileAnotherServes(t *testing.T) {
	s := start(nil, 0, 0, 0)
	for range 3 {
		turn := s.Next("").Turn
		testsupport.True(t, s.Next("").Beside == nil && s.Next("x").Beside == turn, "avoids nothing, and gets %v", s.Next("x").Beside)
		beside := s.Next(turn.Name).Beside
		s.UseTurn()
		testsupport.Equal(t, beside, s.Next("").Turn, "not the next one in turn: %v")
		testsupport.True(t, s.Next(turn.Name).Beside == s.Next("").Turn && s.HasOther(turn.Name), "beside %s: not the next one in turn", turn.Name)
	}
	s.SetEndpointState(s.all[1], Disabled, s.now)
	s.SetEndpointState(s.all[2], Disabled, s.now)
	testsupport.True(t, s.Next("a").Beside == nil && !s.HasOther("a") && s.HasOther("b"), "beside a: %v", s.Next("a").Beside)
}

// A reload keeps an ejection unless it makes a dry run of it, and the results of checks while there are checks.
func TestWhatAReloadKeeps(t *testing.T) {
	s := start(func(s *Settings) { s.Checked = true }, 0, 0, 0, 0)
	s.eject(t, s.all[1])
	s.SetProbe(s.all[1], ProbeIsCheck, s.now)
	for range 3 {
		s.CheckEnded(s.all[2], errCheck, s.now)
	}
	for _, c := range []struct {
		checked, dryRun bool
		want            string
	}{{true, false, "enabled ejected unhealthy enabled"}, {false, false, "enabled ejected enabled enabled"}, {true, true, "enabled enabled enabled enabled"}} {
		settings := s.settings
		settings.Checked, settings.Ejection.DryRun = c.checked, c.dryRun
		s.Set(settings, s.now)
		testsupport.Equal(t, s.states(), c.want, "%[2]+v: %[1]s", c)
	}

	s = start(func(s *Settings) { s.Checked = true }, 0, 0)
	s.eject(t, s.all[1])
	s.SetProbe(s.all[1], ProbeSent, s.now)
	s.Set(s.settings, s.now)
	testsupport.Equal(t, s.all[1].Probe(), ProbeSent, "a request that is the probe is not: %v")
	s.SetProbe(s.all[1], ProbeIsCheck, s.now)
	settings := s.settings
	settings.Checked = false
	s.Set(settings, s.now)
	due, _ := s.DueProbes(s.now.Add(5 * time.Second))
	testsupport.Equal(t, len(due), 1, "without checks, %d requests are due as probes")
}

func TestAReloadRemovesEndpoints(t *testing.T) {
	s := start(nil, 0, 0)
	a, b := s.all[0], s.all[1]
	s.eject(t, b)
	s.SetProbe(b, ProbeDials, s.now)
	removed := s.Set(Settings{Endpoints: []Options{{Name: "c", Weight: 2}, {Name: "a", Weight: 1}}, Ejection: testEjection()}, s.now)
	testsupport.True(t, len(removed) == 1 && removed[0] == b && b.Barred() && b.Unneeded() && !b.Active() && !b.Probing(), "removed %v", removed)
	testsupport.True(t, s.all[1] == a && a.Index == 1 && len(s.Endpoints()) == 2 && s.Share(a, 3) == 1, "a is at %d", a.Index)
	removed = s.Set(Settings{}, s.now)
	testsupport.True(t, len(removed) == 2 && len(s.all) == 1 && s.all[0].Name == "" && s.Next("").Turn == s.all[0] && s.all[0].Weight() == 1, "without endpoints there are %v", s.all)
}

// a and b have priority 0, c has priority 1. Only an endpoint that a connection would make active, or that needs one for
// its probe, is worth the connection of another endpoint.
func TestEndpointsThatLackOnlyAConnection(t *testing.T) {
	unreachable := func(names string) func(*ssp) {
		return func(s *ssp) {
			for _, e := range s.all {
				s.SetUnreachable(e, strings.Contains(names, e.Name), s.now)
			}
		}
	}
	for _, c := range []struct {
		name  string
		setUp func(*ssp)
		want  string
	}{
		{"all can be reached", func(*ssp) {}, ""},
		{"a primary is unreachable", unreachable("a"), "a"},
		{"a spare beside primaries", unreachable("c"), ""},
		{"all but one primary", unreachable("ac"), "a"},
		{"both primaries", unreachable("ab"), "ab"},
		{"all, so that both primaries are active", unreachable("abc"), "c"},
		{"unreachable and disabled", func(s *ssp) { unreachable("a")(s); s.SetEndpointState(s.all[0], Disabled, s.now) }, ""},
		{"unreachable and unhealthy", func(s *ssp) { unreachable("a")(s); s.all[0].checks.unhealthy = true; s.rebuild(s.now) }, ""},
		{"ejected", func(s *ssp) { s.eject(t, s.all[0]) }, ""},
		{"ejected, and the probe is due", func(s *ssp) { s.eject(t, s.all[0]); s.now = s.now.Add(5 * time.Second) }, "a"},
		{"the probe is a check", func(s *ssp) { s.eject(t, s.all[0]); s.now = s.now.Add(5 * time.Second); s.settings.Checked = true }, ""},
		{"the probe is under way", func(s *ssp) {
			s.eject(t, s.all[0])
			s.now = s.now.Add(5 * time.Second)
			s.SetProbe(s.all[0], ProbeDials, s.now)
		}, ""},
	} {
		s := start(nil, 0, 0, 1)
		c.setUp(s)
		testsupport.Equal(t, s.which(func(e *Endpoint) bool { return s.LacksOnlyConnection(e, s.now) }), c.want, "%[2]s: %[1]q lack only a connection", c.name)
	}
}
