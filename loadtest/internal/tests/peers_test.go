package tests

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"adbuffer/internal/test/testsupport"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

func TestOnlyTheExactResponseOfTheUpstreamPasses(t *testing.T) {
	body := []byte(kilobyte)
	check := func(addr string, encrypted bool) error {
		return forwards(t.Context(), &rig.Stage{Addr: addr, TLS: encrypted}, rig.Presets()["ad"], body)
	}
	json := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
	}
	up := httptest.NewServer(http.HandlerFunc(json))
	defer up.Close()
	if err := check(strings.TrimPrefix(up.URL, "http://"), false); err != nil {
		t.Errorf("the upstream itself: %v", err)
	}
	s := httptest.NewTLSServer(http.HandlerFunc(json))
	if err := check(strings.TrimPrefix(s.URL, "https://"), true); err != nil {
		t.Errorf("over TLS: %v", err)
	}
	s.Close()
	for name, h := range map[string]http.HandlerFunc{
		"another body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte(strings.Replace(string(body), "x", "y", 1)))
		},
		"another status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(502)
			w.Write(body)
		},
		"another type": func(w http.ResponseWriter, _ *http.Request) { w.Write(body) },
		"too much":     func(w http.ResponseWriter, _ *http.Request) { w.Write(append(slices.Clone(body), ' ')) },
	} {
		s := httptest.NewServer(h)
		if err := check(strings.TrimPrefix(s.URL, "http://"), false); err == nil {
			t.Errorf("%s passed", name)
		}
		s.Close()
	}
}

func TestAFanOutNeedsTheBidsOfAllSSPs(t *testing.T) {
	for bids, passes := range map[int]bool{7: false, 8: true, 9: false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			testsupport.Equal(t, q.Method+q.URL.Path, "POST/all", "%s")
			w.Write([]byte(strings.Repeat(`{"id":"1","impid":"1"}`, bids)))
		}))
		err := fansOut(t.Context(), &rig.Stage{Addr: strings.TrimPrefix(s.URL, "http://")}, fanOutRequest("/all"))
		testsupport.True(t, (err == nil) == passes, "%d bids: %v", bids, err)
		s.Close()
	}
}

func TestFanOutsShowTheCostOfALeg(t *testing.T) {
	void := measured("adbuffer", "pipelined/all")
	void.void = "3 of 9 requests failed"
	c := &comparison{Rig: &rig.Rig{Rep: new(results.Report)}, rows: []*peerRow{measured("adbuffer", "h1", 20), measured("adbuffer", "h1/all", 80, 160, 240),
		measured("adbuffer", "h1/merged", 320), void}}
	c.showFanOuts()
	var got []string
	for _, row := range c.Rep.Tables[0].Rows {
		got = append(got, strings.Join(row.Cells[:min(3, len(row.Cells))], " | "))
	}
	want := []string{"adbuffer HTTP/1.1 | 20 (10–30) | 1", "adbuffer HTTP/1.1, merge: openrtb | 40 | 2", "adbuffer pipelined | void"}
	testsupport.True(t, slices.Equal(got, want), "%q, want %q", got, want)
}

func TestRequestsThatFailVoidARowOrOneFigure(t *testing.T) {
	figures := func(failed uint64) rig.Load {
		return func(*rig.Stage) (*rig.Figures, error) {
			return &rig.Figures{Summary: load.Summary{Answered: 97, Failed: failed, Seconds: 1}}, nil
		}
	}
	hangs := func(*rig.Stage) (*rig.Figures, error) { return nil, errors.New("signal: killed") }
	good := figures(0)
	for name, c := range map[string]struct {
		row    peerRow
		void   string
		doubts int // beside that the row used no core
	}{
		"all is well": {peerRow{loads: peerLoads{good, good, good}}, "", 0},
		"saturation":  {peerRow{loads: peerLoads{figures(3)}}, "3 requests failed, 97 did not: of unknown kind", 0},
		"a fixed rate": {peerRow{loads: peerLoads{good, figures(1)}},
			"1 requests failed, 97 did not: of unknown kind", 0},
		"the fast rate":      {peerRow{loads: peerLoads{good, good, figures(1)}}, "", 1},
		"a tool that hangs":  {peerRow{loads: peerLoads{hangs}}, "signal: killed", 0},
		"no request at all ": {peerRow{loads: peerLoads{func(*rig.Stage) (*rig.Figures, error) { return new(rig.Figures), nil }}}, "0 requests failed, 0 did not: none", 0},
	} {
		r := new(rig.Rig)
		c.row.stage = &rig.Stage{Rig: r}
		err := r.Do(t.Context(), c.row.measure)
		testsupport.True(t, err == nil && c.row.void == c.void, "%s: void %q, %v", name, c.row.void, err)
		if c.void == "" && len(c.row.allDoubts()) != 1+c.doubts {
			t.Errorf("%s: doubts %q", name, c.row.allDoubts())
		}
		if table := (&comparison{Rig: &rig.Rig{Rep: new(results.Report)}, rows: []*peerRow{&c.row}}); c.void != "" {
			table.table("void", "", false)
			if row := table.Rep.Tables[0].Rows[0]; row.Cells[1] != "void" || len(row.Doubts) != 1 {
				t.Errorf("%s: %+v", name, row)
			}
		}
	}
}

// A dead proxy must not look like a row without figures.
func TestProxyThatDiesEndsTheComparison(t *testing.T) {
	proxy := exec.Command("sleep", "60")
	testsupport.NoError(t, proxy.Start())
	r := new(rig.Rig)
	row := peerRow{stage: &rig.Stage{Rig: r, PID: proxy.Process.Pid},
		loads: peerLoads{func(*rig.Stage) (*rig.Figures, error) {
			_ = proxy.Process.Kill()
			_ = proxy.Wait()
			return nil, errors.New("wrk: connection refused")
		}}}
	if err := r.Do(t.Context(), row.measure); err == nil {
		t.Errorf("void %q, no error", row.void)
	}
}

// measured makes the rounds of a row with these costs. p99 and p99.9 are as many milliseconds.
func measured(peer, way string, costs ...float64) *peerRow {
	r := &peerRow{peer: peer, way: way}
	for _, cost := range costs {
		f := &rig.Figures{Usage: rig.Usage{CPUus: cost}, Summary: load.Summary{Latency: load.Latency{P99: cost, P999: cost}}}
		r.rounds[saturated], r.rounds[fast] = append(r.rounds[saturated], f), append(r.rounds[fast], f)
	}
	return r
}

func TestRowsAreComparedRoundByRound(t *testing.T) {
	void := measured("nginx", "h1", 1)
	void.void = "3 of 9 requests failed"
	c := &comparison{Rig: &rig.Rig{Rep: new(results.Report)}, peersOptions: peersOptions{rounds: 3},
		rows: []*peerRow{void, measured("adbuffer", "h1", 30, 40, 32), measured("haproxy", "h1", 14, 25, 15),
			measured("adbuffer", "pipelined", 10, 20, 12)}}
	c.summarize()
	if row := c.Rep.Tables[0].Rows[0].Cells; !c.Rep.Tables[0].Summary || row[1] != "32 (30–40)" ||
		row[2] != "12 (10–20)" || row[3] != "–" {
		t.Errorf("%q", row)
	}
	c.table("costs", "h1", false)
	var got []string
	for _, row := range c.Rep.Tables[1].Rows {
		got = append(got, strings.Join(row.Cells[:min(3, len(row.Cells))], " | "))
	}
	// 30/14, 40/25, 32/15: the median of the rounds' ratios, the least and the most.
	if want := []string{"adbuffer pipelined | 12 (10–20) | 0.80 (0.71–0.80)", "haproxy h1 | 15 (14–25) | 1",
		"adbuffer h1 | 32 (30–40) | 2.13 (1.60–2.14)", "nginx h1 | void"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A flag that --than would ignore is an error.
func TestThanRefusesFlagsOfOtherComparisons(t *testing.T) {
	for args, want := range map[string]string{
		"--than old": "", "--than old --rounds 20": "", "--only nginx": "",
		"--than old --only nginx": "leave out --only", "--than old --rate 0": "leave out --rate", "--than old --idle 0": "leave out --idle",
		"--than old --profile p": "leave out --profile", "--than old --readme r": "leave out --readme",
	} {
		c, f := peersCommand(), pflag.NewFlagSet("peers", pflag.ContinueOnError)
		c.Flags(f)
		testsupport.NoError(t, f.Parse(strings.Fields(args)))
		err := c.Check(f)
		testsupport.True(t, (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want)), "%s: %v, want %q", args, err, want)
	}
}
