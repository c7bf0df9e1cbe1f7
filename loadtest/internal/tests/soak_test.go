package tests

import (
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

func TestLogCountsWhatArrivedOnceTwiceAndNever(t *testing.T) {
	log := "0000000001 1\n0000000003 2\n0000000003 1\n0000000009 2\n- 3\n0000000004 4\n0000000003 5\n"
	a, err := readLog(strings.NewReader(log), 5)
	testsupport.NoError(t, err)
	if a.once != 2 || a.twice != 1 || a.never != 2 || a.foreign != 2 || a.connections != 2 || a.longest != 5 || a.afterPause != 4 ||
		!slices.Equal(a.repeated, []int{3}) || a.stranger != "-" {
		t.Errorf("%+v", a)
	}
	for _, broken := range []string{"0000000001\n", "0000000001 x\n"} {
		if _, err := readLog(strings.NewReader(broken), 5); err == nil || !strings.Contains(err.Error(),
			"nginx has logged") {
			t.Errorf("%q: %v", broken, err)
		}
	}
}

func TestEachViolationIsReported(t *testing.T) {
	good := func() soaked {
		return soaked{&rig.Figures{Summary: load.Summary{Answered: 4000}},
			account{once: 4000, connections: 5, longest: 1000, afterPause: 128}, 5, 5, 0, nil}
	}
	if got := good().violations(ways[0], 4000); len(got) > 0 {
		t.Errorf("%q", got)
	}
	for words, violate := range map[string]func(*soaked){
		"3999 of 4000 got a response with their number, 1 of 4000 failed (cut: 1)": func(s *soaked) {
			s.Answered, s.Failed, s.Errors = 3999, 1, map[string]uint64{load.Cut: 1}
		},
		"3998 of 4000 got a response": func(s *soaked) { s.Answered = 3998 },
		"2 reached nginx more than once, such as [17 18]": func(s *soaked) {
			s.twice, s.repeated = 2,
				[]int{17, 18}
		},
		`the last errors: ["GET sent 2 times: x"]`:                func(s *soaked) { s.errors = []string{"GET sent 2 times: x"} },
		"1 never reached nginx":                                   func(s *soaked) { s.never = 1 },
		`nginx saw 1 requests that no client sent, such as "x"`:   func(s *soaked) { s.foreign, s.stranger = 1, "x" },
		"2 of 5 connections do not speak http1":                   func(s *soaked) { s.speaking = 3 },
		"nginx closed no connection after 1000 requests: 5 of":    func(s *soaked) { s.longest = 999 },
		"5 of them carried up to 1001":                            func(s *soaked) { s.longest = 1001 },
		"in the pause: the first request after it was number 129": func(s *soaked) { s.afterPause = 129 },
	} {
		s := good()
		violate(&s)
		if got := s.violations(ways[0], 4000); len(got) != 1 || !strings.Contains(got[0], words) {
			t.Errorf("%q, want %q", got, words)
		}
		r := new(results.Report)
		judgeSoak(r, ways[0], 4000, s)
		testsupport.True(t, r.Broken() != nil, "%q: the promise holds", words)
	}
}

func TestWaysThatAreNegotiatedHaveTLS(t *testing.T) {
	for _, w := range ways {
		testsupport.True(t, strings.HasPrefix(w.protocol, "http1") || w.tls, "%s is negotiated, which needs TLS", w.name)
	}
}
