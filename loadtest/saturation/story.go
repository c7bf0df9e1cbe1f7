package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// story is what happened.
type story struct {
	began    time.Time
	machine  *machine
	progress io.Writer
	lines    []string // of the table, one a quarter of a minute
	events   []string
	last     state

	alerts      map[string]time.Time // when each fired first
	refused     time.Time            // when a request was refused first
	advised     int
	before      map[string]int // answers with the pool that is too small
	after       map[string]int // and with the advised one
	waitedAfter uint64
	lentAfter   uint64
}

// state is the pool at one moment.
type state struct {
	hold, saturation float64
	load             float64
	advised, waiting int
	advice           string
	waited, lent     uint64
}

func (s state) String() string {
	return fmt.Sprintf("held %.0f ms, %.0f places busy on average, saturation %.2f, %d waiting, advised %d connections", 1000*s.hold, s.load, s.saturation, s.waiting, s.advised)
}

func (s *story) at() string {
	d := time.Since(s.began).Round(time.Second)
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

func (s *story) note(format string, args ...any) {
	text := s.at() + " " + fmt.Sprintf(format, args...)
	s.events = append(s.events, text)
	say(s.progress, "%s", text)
}

// watch looks every second for so long, and calls do before each look.
func (s *story) watch(ctx context.Context, l *load, length time.Duration, do func() error) error {
	for end, n := time.Now().Add(length), 0; time.Now().Before(end); n++ {
		if do != nil {
			if err := do(); err != nil {
				return err
			}
		}
		if err := s.look(l); err != nil {
			return err
		}
		if n%15 == 14 {
			s.lines = append(s.lines, fmt.Sprintf("| %s | %.0f | %.1f | %.2f | %d | %d |", s.at(), 1000*s.last.hold, s.last.load, s.last.saturation, s.last.waiting, s.last.advised))
			say(s.progress, "%s %s", s.at(), s.last)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (s *story) look(l *load) error {
	var v struct {
		Pools []struct {
			Saturation float64
			Pending    int
			Lent       uint64
			Advice     string
			Need       struct {
				HoldSeconds float64 `json:"hold_seconds"`
				Load        float64
				Advised     int `json:"advised_connections"`
			}
		}
	}
	if err := s.machine.get("http://"+s.machine.admin+"/pools", &v); err != nil {
		return err
	}
	p := v.Pools[0]
	s.last = state{hold: p.Need.HoldSeconds, saturation: p.Saturation, load: p.Need.Load, advised: p.Need.Advised, waiting: p.Pending, advice: p.Advice, lent: p.Lent}
	var err error
	if s.last.waited, err = s.machine.waited(); err != nil {
		return err
	}
	names, err := s.machine.firing()
	if err != nil {
		return err
	}
	if s.alerts == nil {
		s.alerts = map[string]time.Time{}
	}
	for _, name := range names {
		if s.alerts[name].IsZero() {
			s.alerts[name] = time.Now()
			s.note("**%s fires**; the page says: %s", name, s.last.advice)
		}
	}
	if at := l.refusedAt(); s.refused.IsZero() && !at.IsZero() {
		s.refused = at
		s.note("**the first request is refused**; %s", s.last)
	}
	return nil
}

// firstAlert is the alert that came first.
func (s *story) firstAlert() (name string, at time.Time) {
	for _, n := range slices.Sorted(maps.Keys(s.alerts)) {
		if at.IsZero() || s.alerts[n].Before(at) {
			name, at = n, s.alerts[n]
		}
	}
	return name, at
}

// verdict is what of the promise was not kept.
func (s *story) verdict() error {
	name, at := s.firstAlert()
	var faults []error
	if name == "" {
		faults = append(faults, errors.New("no alert fired"))
	} else if !s.refused.IsZero() && !at.Before(s.refused) {
		faults = append(faults, fmt.Errorf("%s fired %v after the first request was refused", name, at.Sub(s.refused).Round(time.Second)))
	}
	if s.refused.IsZero() {
		faults = append(faults, errors.New("no request was refused by the pool that is too small: the story shows nothing"))
	}
	for what, n := range s.after {
		if what != "200 ssp/slowing" {
			faults = append(faults, fmt.Errorf("with the advised size %d requests got %q", n, what))
		}
	}
	if share := s.waitingShare(); share > 0.03 {
		faults = append(faults, fmt.Errorf("with the advised size %.1f %% of the requests waited, 3 %% may", 100*share))
	}
	return errors.Join(faults...)
}

func (s *story) waitingShare() float64 { return float64(s.waitedAfter) / float64(max(1, s.lentAfter)) }

func (s *story) markdown() []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# A pool that gets too small, and what says so\n")
	p("%d requests/s (Poisson arrivals) to an SSP over a pool of %d connections, `max_pending` 100, `pending_timeout` 250 ms. The SSP slows from %v to %v: by", rate, poolSize, fast, slow)
	p("Little's law that keeps %.0f places busy at first and %.0f at last, more than there are. A real Prometheus scrapes adbuffer every 5 s and", rate*fast.Seconds(), rate*slow.Seconds())
	p("evaluates the rules of `deploy/prometheus` as they are.\n")
	if err := s.verdict(); err != nil {
		p("**The promise was not kept:** %v\n", err)
	} else {
		name, at := s.firstAlert()
		p("**`%s` fired %v before the first request was refused.** With the advised %d connections %.2f %% of the requests waited, and none was refused.\n",
			name, s.refused.Sub(at).Round(time.Second), s.advised, 100*s.waitingShare())
	}
	p("## What happened\n")
	for _, e := range s.events {
		p("- %s", e)
	}
	p("\nAnswers with %d connections: %s.  \nWith %d: %s.\n", poolSize, answers(s.before), s.advised, answers(s.after))
	p("## Every quarter of a minute\n")
	p("Hold and load are of the last minute, saturation and waiting requests of the moment.\n")
	p("| time | place held, ms | places busy on average | saturation | waiting | advised connections |\n|---|---|---|---|---|---|\n%s\n", strings.Join(s.lines, "\n"))
	p("%s, %s. `go run ./loadtest/saturation` writes this page anew.", s.began.UTC().Format("2006-01-02"), strings.Join(s.machine.versions, ", "))
	return b.Bytes()
}

func answers(counts map[string]int) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%d × `%s`", counts[what], what))
	}
	return strings.Join(all, ", ")
}
