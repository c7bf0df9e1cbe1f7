package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"adbuffer/loadtest/internal/stage"
)

func TestLogCountsWhatArrivedOnceTwiceAndNever(t *testing.T) {
	log := "0000000001 1\n0000000003 2\n0000000003 1\n0000000009 2\n- 3\n0000000004 4\n0000000003 5\n"
	a, err := readLog(strings.NewReader(log), 5)
	if err != nil {
		t.Fatal(err)
	}
	if a.once != 2 || a.twice != 1 || a.never != 2 || a.foreign != 2 || a.connections != 2 || a.longest != 5 || !slices.Equal(a.repeated, []int{3}) || a.stranger != "-" {
		t.Errorf("%+v", a)
	}
	for _, broken := range []string{"0000000001\n", "0000000001 x\n"} {
		if _, err := readLog(strings.NewReader(broken), 5); err == nil || !strings.Contains(err.Error(), "nginx has logged") {
			t.Errorf("%q: %v", broken, err)
		}
	}
}

func TestThreeHundredTimesAreNotOnce(t *testing.T) {
	if a, err := readLog(strings.NewReader(strings.Repeat("0000000001 1\n", 257)), 1); err != nil || a.twice != 1 || a.once != 0 {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestEachViolationIsReported(t *testing.T) {
	type books struct {
		account
		stage.Values
	}
	good := func() *books {
		return &books{account{once: 4000, connections: 5, longest: 1000}, stage.Values{"answered": 4000, "opened": 5, "speaking": 5}}
	}
	check := func(b *books) []string { return b.violations(ways[0], 4000, b.Values, "1 of 4000 failed (cut: 1)") }
	if got := check(good()); len(got) > 0 {
		t.Errorf("%q", got)
	}
	for words, violate := range map[string]func(*books){
		"3999 of 4000 got a response with their number, 1 of 4000 failed (cut: 1)": func(b *books) { b.Values["answered"], b.Values["failed"] = 3999, 1 },
		"3998 of 4000 got a response":                           func(b *books) { b.Values["answered"] = 3998 },
		"2 reached nginx more than once, such as [17 18]":       func(b *books) { b.twice, b.repeated = 2, []int{17, 18} },
		"1 never reached nginx":                                 func(b *books) { b.never = 1 },
		`nginx saw 1 requests that no client sent, such as "x"`: func(b *books) { b.foreign, b.stranger = 1, "x" },
		"2 of 5 connections do not speak http1":                 func(b *books) { b.Values["speaking"] = 3 },
		"nginx closed no connection after 1000 requests: 5 of":  func(b *books) { b.longest = 999 },
		"5 of them carried up to 1001":                          func(b *books) { b.longest = 1001 },
	} {
		b := good()
		violate(b)
		if got := check(b); len(got) != 1 || !strings.Contains(got[0], words) {
			t.Errorf("%q, want %q", got, words)
		}
	}
}

func TestWaysHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range ways {
		for _, name := range []string{w.name, w.id} {
			if seen[name] {
				t.Errorf("two ways are called %q", name)
			}
			seen[name] = true
		}
		if !strings.HasPrefix(fmt.Sprint(w.protocol), "http1") && !w.tls {
			t.Errorf("%s is negotiated, which needs TLS", w.name)
		}
	}
}
