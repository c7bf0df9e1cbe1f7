package reports

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"adbuffer/loadtest/internal/load"
)

func TestLogTellsWhatCameOnceTwiceAndNever(t *testing.T) {
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

func TestEachBreachIsSaidInWords(t *testing.T) {
	good := func() *outcome {
		return &outcome{sent: 4000, whole: load.Summary{Answered: 4000}, opened: 5, seen: account{once: 4000, connections: 5, longest: 1000}}
	}
	if v := good().verdict(ways[0]); !v.Held || !strings.Contains(v.Words, "4 000 of 4 000, over 5 connections") {
		t.Errorf("%+v", v)
	}
	for words, breach := range map[string]func(*outcome){
		"3999 of 4000 were answered with their number, 1 failed (map[wrong response:1])": func(o *outcome) {
			o.whole.Answered, o.whole.Failed, o.whole.Errors = 3999, 1, map[string]uint64{"wrong response": 1}
		},
		"3998 of 4000 were answered":                            func(o *outcome) { o.whole.Answered = 3998 },
		"2 reached nginx more than once, such as [17 18]":       func(o *outcome) { o.seen.twice, o.seen.repeated = 2, []int{17, 18} },
		"1 never reached nginx":                                 func(o *outcome) { o.seen.never = 1 },
		`nginx saw 1 requests that no client sent, such as "x"`: func(o *outcome) { o.seen.foreign, o.seen.stranger = 1, "x" },
		"2 of 5 connections do not speak http1":                 func(o *outcome) { o.others = 2 },
		"nginx closed no connection after 1000 requests: 5 of":  func(o *outcome) { o.seen.longest = 999 },
		"5 of them carried up to 1001":                          func(o *outcome) { o.seen.longest = 1001 },
	} {
		o := good()
		breach(o)
		if v := o.verdict(ways[0]); v.Held || v.Doubted || !strings.Contains(v.Words, words) {
			t.Errorf("%+v, want %q", v, words)
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
