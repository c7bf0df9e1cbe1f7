package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
)

func TestMain(m *testing.M) {
	ChildMain()
	os.Exit(m.Run())
}

// perform performs a test with a rig, and returns its error.
func perform(t *testing.T, test func(r *Rig)) error {
	t.Helper()
	r, err := New(t.Logf)
	testsupport.NoError(t, err)
	t.Cleanup(r.Close)
	return r.Do(t.Context(), func() { test(r) })
}

// succeed performs a test with a rig.
func succeed(t *testing.T, test func(r *Rig)) {
	t.Helper()
	testsupport.NoError(t, perform(t, test))
}

func plan(addr string) load.Plan {
	return load.Plan{Addr: addr, Protocol: load.KeepAlive, Connections: 2, Requests: 20,
		Phases: []load.Phase{{Name: "load", Duration: time.Minute}}, Templates: []load.Template{{Name: "get", Method: "GET", Path: "/bid?cb={n}"}}}
}

func TestGeneratorAndSSPInProcessesOfTheirOwnAgreeOnTheCounts(t *testing.T) {
	err := perform(t, func(r *Rig) {
		s := r.startSSP("one", "", simulation{})
		result := Must(r.Generate(plan(s.Addr), nil))(r)
		if c := s.Counters(); result.Whole.Answered != 20 || c.Requests != 20 || c.Connections != 2 {
			t.Errorf("generator: %d answers; SSP: %d requests on %d connections", result.Whole.Answered, c.Requests, c.Connections)
		}
		s.Patch([]byte(`{"faults":{"status":{"every":2}}}`))
		if result = Must(r.Generate(plan(s.Addr), nil))(r); result.Whole.Errors["status 503"] != 10 {
			t.Errorf("after the change: errors %v", result.Whole.Errors)
		}
		s.Patch([]byte(`{"nosuch":1}`))
	})
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "nosuch"), "a change with an unknown key: %v", err)
}

func TestGeneratorInAProcessOfItsOwnReportsItsProgress(t *testing.T) {
	succeed(t, func(r *Rig) {
		s := r.startSSP("one", "", simulation{Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(5 * time.Millisecond)}})
		p := plan(s.Addr)
		p.Tick = 5 * time.Millisecond
		calls := 0
		result := Must(r.Generate(p, func(load.Progress) { calls++ }))(r)
		if result.Whole.Answered != 20 || calls == 0 {
			t.Errorf("%d answers, progress reported %d times", result.Whole.Answered, calls)
		}
	})
}

// Each measurement of a calm load has all its attempts, also after measurements that needed theirs.
func TestDoubtfulMeasurementIsMadeUpToThreeTimes(t *testing.T) {
	succeed(t, func(r *Rig) {
		again := 0
		r.Say = func(format string, _ ...any) {
			if strings.HasPrefix(format, "again") {
				again++
			}
		}
		fails := sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}}}
		s := r.Start(Setup{Program: "direct", SSPs: []*SSP{{Name: "ssp", Behaviour: fails}}})
		run := GenerateRetried(ClosedLoop(1, 1, 0, Get("/bid")), true) // no request gets a response, which is doubtful
		for n := range 3 {
			s.Measure(run)
			testsupport.Equal(t, again, 2*(n+1), "%d repetitions after %d measurements", n+1)
		}
	})
}

func TestSSPWithTLSReportsItsCA(t *testing.T) {
	succeed(t, func(r *Rig) {
		s := r.startSSP("two", "", simulation{Protocol: sspsim.TLSHTTP2})
		pem := Must(os.ReadFile(s.CAFile))(r)
		if !strings.Contains(string(pem), "BEGIN CERTIFICATE") || !strings.HasPrefix(s.URL, "https://") {
			t.Errorf("%s, %q", s.URL, pem)
		}
	})
}

func TestImpossibleBehaviourIsTheChildsError(t *testing.T) {
	err := perform(t, func(r *Rig) { r.startSSP("bad", "", simulation{Protocol: "gopher"}) })
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "gopher"), "%v", err)
}

func TestHeldConnectionsStayOpenUntilReleased(t *testing.T) {
	succeed(t, func(r *Rig) {
		s := r.startSSP("idle", "", simulation{})
		release := Must(Hold(t.Context(), "http://"+s.Addr, Get("/bid"), 50, false))(r)
		if c := s.Counters(); c.OpenConnections != 50 || c.Requests != 50 {
			t.Errorf("%d open, %d requests", c.OpenConnections, c.Requests)
		}
		release()
		s.Await(30*time.Second, "close the connections after their release", func() bool { return s.Counters().OpenConnections == 0 })
	})
}

func TestCloseEndsAllProcessesAndRemovesTheFolder(t *testing.T) {
	succeed(t, func(r *Rig) {
		up := &Route{Serve: "hello"}
		r.StartProgram("constant", "", "", up)
		c := Must(net.Dial("tcp", up.Addr))(r)
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
			t.Errorf("%q, %v", line, err)
		}
		r.Close()
		testsupport.True(t, !up.Process.Running(), "the process runs on")
		if _, err := os.Stat(r.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is still there: %v", err)
		}
	})
}

func TestErrorOfAProcessThatEndsEarlyHasItsOutput(t *testing.T) {
	err := perform(t, func(r *Rig) {
		p := r.StartProcess(Command{Name: "shell", Argv: []string{"sh", "-c", "echo no such thing; exit 3"}})
		p.AwaitPort("127.0.0.1:1", 30*time.Second)
	})
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "no such thing"), "%v", err)
}

// A process that ignores SIGPIPE cannot write while nobody reads its log.
func TestALogHasNoReaderForAWhile(t *testing.T) {
	succeed(t, func(r *Rig) {
		file := r.Dir + "/step"
		await := func(name string) string { return "while [ ! -e " + file + name + " ]; do sleep 0.01; done; " }
		p := r.StartProcess(Command{Name: "sh", Piped: true, Argv: []string{"sh", "-c",
			"trap '' PIPE; echo first; " + await("1") + "echo second || touch " + file + "2; " + await("3") + "echo third"}})
		p.Await(testsupport.Patience, "write", func() bool { return string(p.Log()) == "first\n" })
		p.LoseLog(func() {
			r.Check(os.WriteFile(file+"1", nil, 0o600))
			p.Await(testsupport.Patience, "fail to write", func() bool { _, err := os.Stat(file + "2"); return err == nil })
		})
		r.Check(os.WriteFile(file+"3", nil, 0o600))
		status := Must(p.AwaitEnd(testsupport.Patience))(r)
		if log := string(p.Log()); status != 0 || log != "first\nthird\n" {
			t.Errorf("exit status %d, log %q", status, log)
		}
	})
}

func TestMissingProgramIsNotedOrEndsTheTest(t *testing.T) {
	rep := &results.Report{Versions: map[string]string{}}
	err := perform(t, func(r *Rig) {
		r.Rep = rep
		if r.Has("no-such-program") || !r.Has("reverseproxy") {
			t.Error("a missing program is there, or one of this package is not")
		}
		r.Needs("no-such-program")
	})
	testsupport.True(t, errors.Is(err, errMissing) && len(rep.Missing) == 1 && rep.Versions["reverseproxy"] != "", "%v, %+v", err, rep)
}

func TestPortsOfFreeAddrAreReservedUntilClose(t *testing.T) {
	succeed(t, func(r *Rig) {
		seen := make(map[string]bool)
		for range 200 {
			addr := r.FreeAddr()
			testsupport.MustTrue(t, !seen[addr], "%s was returned before", addr)
			seen[addr] = true
		}
		r.Close()
		testsupport.Equal(t, len(r.reserved), 0, "%d ports are reserved after Close")
	})
}

// The first error ends a test, also that of a goroutine beside a load, which it interrupts.
func TestFirstErrorEndsATest(t *testing.T) {
	broken := errors.New("no such luck")
	lasts := func(s *Stage) (*Figures, error) {
		<-s.Ctx.Done()
		return nil, s.Ctx.Err()
	}
	for name, test := range map[string]func(*Rig){
		"of the test": func(r *Rig) { r.Check(broken) },
		"of a value":  func(r *Rig) { Must(1, broken)(r) },
		"beside a load": func(r *Rig) {
			(&Stage{Rig: r}).Beside(lasts, func(context.Context) { r.Check(broken) })
		},
	} {
		cleaned, passed := false, false
		err := perform(t, func(r *Rig) {
			defer func() { cleaned = true }()
			r.Next("round %d", 2)
			r.Check(nil)
			test(r)
			passed = true
		})
		if !errors.Is(err, broken) || err.Error() != "round 2: no such luck" || !cleaned || passed {
			t.Errorf("%s: %v, cleaned %v, passed %v", name, err, cleaned, passed)
		}
	}
}

func TestInterruptedTestHasAnError(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	err := new(Rig).Do(ctx, interrupt)
	testsupport.True(t, errors.Is(err, context.Canceled), "%v", err)
}
