//go:build !race

// These tests replay thousands of requests, one after the other. The race detector would make them take six times as
// long; those of trial_test.go replay beside traffic.

package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/operate/replay"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/sample"
)

// mixed is the configuration of the known mix: three routes, five SSPs, two limits.
const mixed = `
server: {request_id: {to_ssp: true}}
deadline: {openrtb_tmax: true}
ssps:
  - {name: display, endpoints: ["http://127.0.0.1:1/"], qps: {limit: 1000}, pool: {max_conns: 40}}
  - {name: america, endpoints: ["http://127.0.0.1:2/"], remove: [{path: device.ifa}]}
  - {name: video, endpoints: ["http://127.0.0.1:3/"], qps: {limit: 1000}}
  - {name: native, endpoints: ["http://127.0.0.1:4/"], compress: {coding: gzip}}
  - {name: backup, endpoints: ["http://127.0.0.1:5/"]}
routes:
  - {name: auction, match: {path: /auction}, mode: parallel-all, ssps: [display, {name: america, when: [{path: device.geo.country, in: [USA]}]}]}
  - {name: split, match: {path: /split}, mode: split, ssps: [{name: display, weight: 1}, {name: video, weight: 3}]}
  - {name: fall, match: {path: /fall}, mode: waterfall, ssps: [native, backup]}
`

const (
	mixRate    = 100.0 // requests a second
	mixMinutes = 10
)

// drawn returns a sample of perMinute requests of each minute of the mix: 60 % /auction, of which half are from the USA,
// 30 % /split, 10 % /fall, of which the SSP native fills 40 %. Display holds a place for 100 ms on average.
func drawn(seed uint64, perMinute int, begin time.Time) (all []sample.Stratum) {
	r := rand.New(rand.NewPCG(seed, 40))
	fields := []byte("Host: ads.example\r\nVia: 1.1 proxy\r\nX-Via: a\r\nX-Adbuffer-Timeout-Ms: 1500\r\nContent-Type: application/json\r\nUser-Agent: phone\r\n\r\n")
	body := func(country string) []byte {
		return fmt.Appendf(nil, `{"id":"1","tmax":2000,"device":{"ifa":"1","geo":{"country":%q}},"pad":%q}`, country, strings.Repeat("x", 2000))
	}
	usa, germany := body("USA"), body("DEU")
	fill := func(share float64) exchange.Outcome {
		if r.Float64() < share {
			return exchange.Fill
		}
		return exchange.NoBid
	}
	for m := range mixMinutes {
		mean := mixRate * 60
		s := sample.Stratum{From: begin.Add(time.Duration(m) * time.Minute), Length: time.Minute, Seen: uint64(mean + math.Sqrt(mean)*r.NormFloat64())}
		for i := range perMinute {
			q := &sample.Request{ID: fmt.Sprintf("%d-%d", m, i), Client: netip.MustParseAddr("203.0.113.0"), Method: "GET", Fields: fields, HasBody: true}
			hold := time.Duration(r.ExpFloat64() * 100 * float64(time.Millisecond))
			asked := func(ssp string, o exchange.Outcome) {
				q.Asked = append(q.Asked, sample.Asked{SSP: ssp, Outcome: o, Hold: hold})
			}
			switch kind := r.Float64(); {
			case kind < 0.6:
				q.Method, q.Target, q.Body, q.Route = "POST", []byte("/auction"), germany, "auction"
				if r.Float64() < 0.5 {
					q.Body = usa
					asked("america", fill(0.5))
				}
				q.BodyBytes = len(q.Body)
				asked("display", fill(0.5))
			case kind < 0.9:
				q.Target, q.Route = []byte("/split?pub=1"), "split"
				if r.Float64() < 0.25 {
					asked("display", fill(0.5))
				} else {
					asked("video", fill(0.5))
				}
			default:
				q.Target, q.Route = []byte("/fall"), "fall"
				native := fill(0.4)
				asked("native", native)
				if native != exchange.Fill {
					asked("backup", fill(0.5))
				}
			}
			s.Requests = append(s.Requests, q)
		}
		all = append(all, s)
	}
	return all
}

// sideOf builds the side of a replay for the mix, with the pairs of replaced applied.
func sideOf(t testing.TB, replaced ...string) replay.Side {
	t.Helper()
	return sideOfText(t, strings.NewReplacer(replaced...).Replace(mixed))
}

func sideOfText(t testing.TB, text string) replay.Side {
	t.Helper()
	cfg, _, err := config.Parse([]byte(text), nil)
	testsupport.MustTrue(t, err == nil, "%v in\n%s", err, text)
	e, err := newExplainer(unshaped(cfg), "adbuffer-test")
	testsupport.NoError(t, err)
	t.Cleanup(e.Close)
	return e.side(cfg)
}

func input(now, then replay.Side, strata []sample.Stratum) *replay.Input {
	return &replay.Input{
		Now: now, Then: then, Strata: strata, At: strata[0].From.Add(mixMinutes * time.Minute),
		Protocol: func(string) exchange.Protocol { return exchange.HTTP1 }, Yield: runtime.Gosched,
	}
}

func replayed(t testing.TB, now, then replay.Side, strata []sample.Stratum) *replay.Report {
	t.Helper()
	rep, err := replay.Run(t.Context(), input(now, then, strata))
	testsupport.NoError(t, err)
	return rep
}

// strataOf returns ten minutes of 100 requests a second, of each of which ten are kept: q.
func strataOf(q *sample.Request) []sample.Stratum {
	all, begin := make([]sample.Stratum, mixMinutes), time.Now()
	for i := range all {
		all[i] = sample.Stratum{From: begin.Add(time.Duration(i) * time.Minute), Length: time.Minute, Seen: 6000, Requests: slices.Repeat([]*sample.Request{q}, 10)}
	}
	return all
}

// mixture returns strata as strataOf does, of 17 kept requests each: seven in ten are usual, and three in ten are other.
func mixture(seed uint64, usual *sample.Request, other func(r *rand.Rand) *sample.Request) []sample.Stratum {
	r, strata := rand.New(rand.NewPCG(seed, 50)), strataOf(usual)
	for i := range strata {
		strata[i].Requests = slices.Repeat([]*sample.Request{usual}, 17)
		for j := range strata[i].Requests {
			if r.Float64() < 0.3 {
				strata[i].Requests[j] = other(r)
			}
		}
	}
	return strata
}

func written(rep *replay.Report) string {
	var b bytes.Buffer
	rep.Write(&b)
	return b.String()
}

// Limits of changes.
var (
	anyChange  = replay.Limit{Share: math.Inf(1)}
	tenPercent = replay.Limit{Share: 0.1, Setting: "--max-change"}
)

// changedFiles are changes of the mix's configuration, with the true rates that follow from the mix.
var changedFiles = []struct {
	name     string
	replaced []string
	rates    map[string]float64 // of routes and SSPs
	says     []string
	excess   []string // with a limit of 10 %
}{
	{"nothing", nil, map[string]float64{"auction": 60, "split": 30, "fall": 10, "display": 67.5, "america": 30, "video": 22.5, "native": 10, "backup": 6}, nil, nil},
	{"a route order", []string{"routes:\n", "routes:\n  - {name: all, match: {path: \"/*\"}, ssps: [backup]}\n"},
		map[string]float64{"all": 100, "auction": 0, "split": 0, "fall": 0, "display": 0, "backup": 100},
		[]string{"route all instead of auction", "display is not asked"}, []string{"route all", "route auction", "route fall", "route split", "ssp america", "ssp backup", "ssp display", "ssp native", "ssp video"}},
	{"a condition", []string{"in: [USA]", "in: [USA, DEU]"}, map[string]float64{"auction": 60, "display": 67.5, "america": 60}, []string{"america is asked"}, []string{"ssp america"}},
	{"a limit and a pool", []string{"limit: 1000}, pool: {max_conns: 40}", "limit: 50}, pool: {max_conns: 4}"}, map[string]float64{"display": 67.5, "video": 22.5},
		[]string{"/s over qps.limit", "needs 6 of 4 places (±", "raise pool.max_conns to 12"}, []string{"ssp display, within qps.limit: 63.5 → 50.3/s", "ssp display: needs 6 of 4 places"}},
	{"a removed SSP", []string{", {name: video, weight: 3}", ""}, map[string]float64{"split": 30, "display": 90, "video": 0}, []string{"video is not asked"}, []string{"ssp display", "ssp video"}},
	{"a shorter deadline", []string{"pool: {max_conns: 40}", "timeouts: {request: 50ms}, pool: {max_conns: 40}"}, map[string]float64{"display": 67.5, "america": 30},
		[]string{"display has less time", "/s with less time"}, nil},
	{"weights", []string{"weight: 1}", "weight: 3}"}, map[string]float64{"split": 30, "display": 75, "video": 15}, nil, []string{"ssp display", "ssp video"}},
	{"a limit in a dry run", []string{"limit: 1000}, pool", "limit: 50, dry_run: true}, pool"}, map[string]float64{"display": 67.5}, []string{"/s over qps.limit"}, nil},
}

// Each printed rate holds the truth within its interval for 19 of 20 samples.
func TestRatesOfAReplayHoldTheTruth(t *testing.T) {
	now := sideOf(t)
	begin := time.Now()
	const seeds, perMinute = 20, 10
	held, all := 0, 0
	for _, change := range changedFiles {
		then := sideOf(t, change.replaced...)
		for seed := range uint64(seeds) {
			rep := replayed(t, now, then, drawn(seed, perMinute, begin))
			got := make(map[string]replay.Change)
			for i := range rep.Routes {
				got[rep.Routes[i].Route] = rep.Routes[i].Change
			}
			for i := range rep.SSPs {
				got[rep.SSPs[i].SSP] = rep.SSPs[i].Change
			}
			for name, want := range change.rates {
				all++
				if c := got[name]; math.Abs(c.Then-want) <= c.Margin {
					held++
				}
				if change.replaced == nil {
					testsupport.True(t, got[name].Now == got[name].Then, "%s changes without a change: %+v", name, got[name])
				}
			}
		}
	}
	testsupport.True(t, held*20 >= all*19, "%d of %d rates hold the truth within their intervals", held, all)
	t.Logf("%d of %d rates hold the truth", held, all)
}

func TestAReplayNamesWhatChanges(t *testing.T) {
	now := sideOf(t)
	empty, err := replay.Run(t.Context(), &replay.Input{Now: now, Then: now, At: time.Now(), Yield: runtime.Gosched})
	testsupport.NoError(t, err)
	testsupport.True(t, len(empty.Excess(anyChange)) == 1 && written(empty) == "", "without a sample the report is %q, with the errors %q", written(empty), empty.Excess(anyChange))
	strata := drawn(1, 40, time.Now())
	for _, change := range changedFiles {
		rep := replayed(t, now, sideOf(t, change.replaced...), strata)
		text := written(rep)
		for _, want := range change.says {
			testsupport.True(t, strings.Contains(text, want), "%s: the report lacks %q:\n%s", change.name, want, text)
		}
		excess := rep.Excess(tenPercent)
		testsupport.MustTrue(t, len(excess) == len(change.excess), "%s: too large are %q, want %q", change.name, excess, change.excess)
		for i, want := range change.excess {
			testsupport.True(t, strings.HasPrefix(excess[i], want), "%s: too large is %q, want %q", change.name, excess[i], want)
		}
		testsupport.True(t, rep.Requests == 400 && rep.Undecided == 0, "%s: %d requests, %v undecided", change.name, rep.Requests, rep.Undecided)
		testsupport.True(t, change.replaced != nil || len(rep.Different) == 0, "nothing changes, but %+v", rep.Different)
		var refused config.Errors
		errors.As(rep.Refusal(tenPercent), &refused) // a full pool refuses no reload
		testsupport.True(t, len(refused) == len(slices.DeleteFunc(excess, func(text string) bool { return strings.Contains(text, " needs ") })), "%s: a reload is refused because of %v", change.name, refused)
		for _, d := range rep.Different {
			testsupport.True(t, len(d.IDs) == 3, "%s: %s has the examples %v", change.name, d.What, d.IDs)
		}
	}
}

// A refusal names the limit that allows all of the changes, rounded up to a multiple of 10 %.
func TestARefusalSaysWhatWouldAllowTheChange(t *testing.T) {
	of := func(now, then float64) *replay.Report {
		return &replay.Report{Requests: 1, Routes: []replay.Route{{Route: "r", Change: replay.Change{Now: 100, Then: 100}}}, SSPs: []replay.SSP{
			{SSP: "s", Change: replay.Change{Now: now, Then: then}}, {SSP: "u", Change: replay.Change{Now: 100, Then: 80}}}}
	}
	const rest = " --max-change "
	for _, c := range []struct {
		now, then float64
		limit     replay.Limit
		says      string
	}{
		{100, 110, tenPercent, "ssp u: 100 → 80/s: changes by more than the 10 % that --max-change allows; adbuffer reload --traffic --max-change 20% applies the file nevertheless"},
		{240, 1391, tenPercent, "ssp s: 240 → 1,391/s: changes by more than the 10 % that --max-change allows; adbuffer reload --traffic --max-change 480% applies the file nevertheless"},
		{100, 0, tenPercent, rest + "100% "},
		{0, 1, replay.Limit{Share: 1, Setting: "admin.sample.max_change"}, "ssp s: 0 → 1/s: changes by more than the 100 % that admin.sample.max_change allows; adbuffer reload --traffic --max-change any applies the file nevertheless"},
		{0, 0, replay.Limit{Share: 0.2}, ""},
		{0, 1, anyChange, ""},
	} {
		got := fmt.Sprint(of(c.now, c.then).Refusal(c.limit))
		testsupport.True(t, c.says == "" && got == "<nil>" || c.says != "" && strings.Contains(got, c.says), "%v → %v: %s", c.now, c.then, got)
	}
}

// The places that the report names are those that the mix keeps in use, by Little's law: 67.5/s × 100 ms, and at most 50 ms
// of an exponential time of 100 ms are 39.3 ms.
func TestPlacesOfAReplayFollowFromTheHoldTimes(t *testing.T) {
	now := sideOf(t)
	strata := drawn(3, 200, time.Now())
	for i, want := range map[int]float64{0: 6.75, 5: 2.65} {
		rep := replayed(t, now, sideOf(t, changedFiles[i].replaced...), strata)
		for _, s := range rep.SSPs {
			if s.SSP == "display" {
				testsupport.Between(t, float64(s.Pool.Needs), want*0.9, want*1.1+1, changedFiles[i].name+": needs %v places, want %v", want)
			}
		}
	}
}

// Reports of 100 requests a second, of which 100 are sampled. A mark of a text is where it changes: §s and §u at the SSPs,
// §m in the match of the route, §r before its SSPs.
func TestReportsOfReplays(t *testing.T) {
	get := sample.Request{Method: "GET", Target: []byte("/a"), HasBody: true, Fields: []byte("Host: x\r\n\r\n")}
	large := sample.Request{Method: "POST", Target: []byte("/a"), BodyBytes: 70_000, Fields: []byte("Host: x\r\nContent-Type: application/json\r\n\r\n")}
	large.Asked = []sample.Asked{{SSP: "s", Outcome: exchange.Fill, Hold: 100 * time.Millisecond}}
	small := large
	small.Body, small.BodyBytes, small.HasBody = []byte(`{"a":1}`), 7, true
	masked := get
	masked.Route, masked.Fields = "r", []byte("Host: x\r\nX-Api-Key: xxx\r\n\r\n")
	old, keyed, token, short := get, get, get, small
	old.Route, keyed.Fields, token.Target = "removed", masked.Fields, []byte("/a?token=xxx")
	short.Asked = []sample.Asked{{SSP: "s", Outcome: exchange.Fill, Hold: 200 * time.Microsecond}}
	limited := small
	limited.Asked = []sample.Asked{{SSP: "s", Outcome: exchange.QPSLimit}, {SSP: "u", Outcome: exchange.Fill}}
	s, u, sspsOf, path := `127.0.0.1:1/"]`, `127.0.0.1:2/"]`, "ssps: [s]", "path: /a"
	const bodies = "the sample lacks their bodies"
	for _, c := range []struct {
		name      string
		q         *sample.Request
		both      []string      // replaced in both configurations
		then      []string      // replaced in the other one
		reloaded  time.Duration // when the configuration in force was loaded, after the first minute began
		undecided bool
		says      string
		lacks     string
		excess    string
	}{
		{name: "conditions without bodies", q: &large, then: []string{sspsOf, "ssps: [{name: s, when: [{path: device.ifa, exists: true}]}]"}, undecided: true, excess: bodies},
		{name: "edits without bodies", q: &large, then: []string{s, s + ", remove: [{path: device.ifa}]"}, undecided: true, excess: bodies},
		{name: "tmax without bodies", q: &large, then: []string{"openrtb_tmax: false", "openrtb_tmax: true"}, undecided: true, excess: bodies},
		{name: "truncate_ip without bodies", q: &large, then: []string{sspsOf, sspsOf + ", privacy: truncate_ip"}, undecided: true, excess: bodies},
		{name: "merge without bodies", q: &large, then: []string{sspsOf, "mode: parallel-all, merge: openrtb, ssps: [s, u]"}, undecided: true, excess: bodies},
		{name: "the second of a holdback's routes without bodies", q: &large, both: []string{path + "}", path + ", holdback: 0.1}", "ssps: [s]}\n",
			"ssps: [s]}\n  - {name: later, match: {path: /a, openrtb: [{path: device.ifa, exists: true}]}, ssps: [u]}\n"}, undecided: true, excess: bodies},
		{name: "bodies that decide nothing", q: &large, says: "route r   100     100"},
		{name: "a masked value decides", q: &masked, both: []string{path, "path: /a, header: [{name: X-Api-Key, value: abc}]"}, undecided: true, excess: "masks a value"},
		{name: "a shared limit", q: &get, then: []string{"\nssps:", "\nfleet: {redis: {address: \"127.0.0.1:1\"}, expected_replicas: 10}\nssps:", s, s + ", qps: {limit: 200, scope: fleet}"}, says: "80/s over qps.limit"},
		{name: "another holdback", q: &get, both: []string{"ssps: [s]}\n", "ssps: [s]}\n  - {name: later, match: {path: /a}, ssps: [u]}\n", path + "}", path + ", holdback: 0.45}"},
			then: []string{"0.45", "0.55"}, says: "\n10/s: route later instead of r", lacks: "100/s: "},
		{name: "a mirror with conditions", q: &small, then: []string{sspsOf, sspsOf + ", mirror: {ssp: u, share: 0.5}", u, u + ", when: [{path: device.ifa, exists: true}]"}, says: "50/s filtered"},
		{name: "a mirror", q: &small, then: []string{sspsOf, sspsOf + ", mirror: {ssp: u, share: 0.5}"}, says: "ssp u     0       50"},
		{name: "compression is no edit", q: &small, both: []string{s, s + ", compress: {coding: gzip, min_bytes: 1}"}, says: "route r   100     100", lacks: "edited"},
		{name: "an SSP at its limit did not respond", q: &limited, both: []string{sspsOf, "mode: waterfall, ssps: [s, u]"}, says: "ssp u     100     100"},
		{name: "rewrite_tmax without bodies", q: &large, then: []string{s, s + ", rewrite_tmax: true"}, undecided: true, excess: bodies},
		{name: "too large for the other configuration", q: &large, then: []string{"deadline:", "server: {max_body_bytes: 65536}\ndeadline:"}, says: "100/s: too_large instead of a request to SSPs"},
		{name: "an edit", q: &small, then: []string{s, s + ", remove: [{path: a}]"}, says: "100/s with an edited body, "},
		{name: "bytes", q: &small, then: []string{s, s + ", remove: [{path: a}]"}, says: " bytes/s sent"},
		{name: "a route that a reload removed", q: &old, reloaded: time.Hour, says: "route r   100     100      ±3.79 %"},
		{name: "a masked field in a new condition", q: &keyed, then: []string{path, "path: /a, header: [{name: x-api-key, value: abc}]"}, undecided: true, excess: "masks a value"},
		{name: "a masked parameter in a new condition", q: &token, then: []string{path, "path: /a, query: [{name: token, value: abc}]"}, undecided: true, excess: "masks a value"},
		{name: "a masked field without a value in the condition", q: &keyed, then: []string{path, "path: /a, header: [{name: x-api-key}]"}, says: "route r   100     100"},
		{name: "one of 100 has less time", q: &get, both: []string{sspsOf, "mode: split, ssps: [{name: s, weight: 99}, {name: u, weight: 1}]"}, then: []string{u, u + ", timeouts: {request: 50ms}"},
			says: "\n1/s: u has less time", lacks: "100/s: u"},
		{name: "the first tier fills all", q: &small, both: []string{sspsOf, "mode: waterfall, ssps: [s, u]"}, then: []string{u, u + ", timeouts: {request: 50ms}"}, says: "ssp u     0       0", lacks: "less time"},
		{name: "other tiers first", q: &small, both: []string{"ssps: [s]}", "mode: waterfall, ssps: [s, u]}"}, then: []string{"ssps: [s, u]", "ssps: [u, s]"}, says: "100/s: u is asked"},
		{name: "set makes the body too large", q: &small, both: []string{"deadline:", "server: {max_body_bytes: 1024}\ndeadline:", s, s + ", set: [{path: x, value: " + strings.Repeat("x", 1100) + "}]"},
			then: []string{strings.Repeat("x", 1100), "y"}, says: "100/s: s is asked"},
		{name: "other weights", q: &get, both: []string{sspsOf, "mode: split, ssps: [{name: s, weight: 3}, {name: u, weight: 1}]"}, then: []string{"weight: 3", "weight: 1"},
			says: "25/s: s is not asked"},
		{name: "set makes a mirror's body too large", q: &small, both: []string{"deadline:", "server: {max_body_bytes: 1024}\ndeadline:", sspsOf, sspsOf + ", mirror: {ssp: u, share: 0.5}"},
			then: []string{u, u + ", set: [{path: x, value: " + strings.Repeat("x", 1100) + "}]"}, says: "ssp u     50      0"},
		{name: "one place is enough", q: &short, both: []string{s, s + ", pool: {max_conns: 1}"}, says: "needs 1 of 1 places (±"},
		{name: "unmeasured", q: &get, says: "no sampled request held one of its places"},
	} {
		now := strings.NewReplacer(c.both...).Replace(twoSSPs)
		in := input(sideOfText(t, now), sideOfText(t, strings.NewReplacer(c.then...).Replace(now)), strataOf(c.q))
		in.Since = in.Strata[0].From.Add(c.reloaded)
		rep, err := replay.Run(t.Context(), in)
		testsupport.NoError(t, err)
		text, excess := written(rep), strings.Join(rep.Excess(anyChange), "; ")
		testsupport.True(t, strings.Contains(text, c.says) && (c.lacks == "" || !strings.Contains(text, c.lacks)), "%s: the report wants %q and lacks %q:\n%s", c.name, c.says, c.lacks, text)
		testsupport.True(t, strings.Contains(excess, c.excess) && (excess == "") == (c.excess == ""), "%s: too large is %q, want %q", c.name, excess, c.excess)
		testsupport.True(t, (rep.Undecided == 100) == c.undecided && rep.Rate == 100, "%s: %v/s of %v/s are undecided", c.name, rep.Undecided, rep.Rate)
	}
}

// A limit that is raised by 5 % changes what an SSP gets by 5 %, however few requests of a minute are sampled.
func TestALimitThatIsRaisedALittleIsNoGreatChange(t *testing.T) {
	with := func(limit string) replay.Side {
		return sideOfText(t, strings.Replace(twoSSPs, `127.0.0.1:2/"]`, `127.0.0.1:2/"], qps: {limit: `+limit+`}`, 1)+"  - {name: q, match: {path: /b}, ssps: [u]}\n")
	}
	now, then := with("21"), with("22")
	get := sample.Request{Method: "GET", Target: []byte("/a"), HasBody: true, Fields: []byte("Host: x\r\n\r\n")}
	other := get
	other.Target, other.Asked = []byte("/b"), []sample.Asked{{SSP: "u", Outcome: exchange.NoBid, Hold: time.Millisecond}}
	for seed := range uint64(5) {
		rep := replayed(t, now, then, mixture(seed, &get, func(*rand.Rand) *sample.Request { return &other }))
		testsupport.True(t, rep.Refusal(tenPercent) == nil, "seed %d: %v\n%s", seed, rep.Refusal(tenPercent), written(rep))
	}
}

// A replay lets requests go first, and ends when its client goes away. A minute that has just begun says nothing about a load.
func TestAReplayEndsAndLeavesOutTheMinuteThatHasJustBegun(t *testing.T) {
	now := sideOfText(t, twoSSPs)
	then := sideOfText(t, strings.Replace(twoSSPs, `127.0.0.1:1/"]`, `127.0.0.1:1/"], qps: {limit: 110}`, 1))
	strata := strataOf(&sample.Request{Method: "GET", Target: []byte("/a"), HasBody: true, Fields: []byte("Host: x\r\n\r\n")})
	last := &strata[mixMinutes-1]
	last.Length, last.Seen = 5*time.Second, 5000
	testsupport.Equal(t, replayed(t, now, then, strata).SSPs[0].OverLimit, 0, "%v/s are over the limit, of which five seconds have 1000/s")
	last.Length = 10 * time.Second
	testsupport.True(t, replayed(t, now, then, strata).SSPs[0].OverLimit > 0, "ten seconds of 500/s are not over the limit")

	for i := range strata {
		strata[i].Requests = slices.Repeat(strata[i].Requests, 100)
	}
	ctx, cancel := context.WithCancel(t.Context())
	in := input(now, then, strata)
	in.Yield = cancel
	_, err := replay.Run(ctx, in)
	testsupport.True(t, errors.Is(err, context.Canceled), "the error is %v", err)
}

// An SSP that gets 30 of 100 requests a second is below its limit of 33, however the sample falls.
func TestNoiseOfASampleIsNoLoad(t *testing.T) {
	two := twoSSPs + "  - {name: q, match: {path: /b}, ssps: [u]}\n"
	now := sideOfText(t, two)
	then := sideOfText(t, strings.Replace(two, `127.0.0.1:2/"]`, `127.0.0.1:2/"], qps: {limit: 33}, pool: {max_conns: 4}`, 1))
	get := sample.Request{Method: "GET", Target: []byte("/a"), HasBody: true, Fields: []byte("Host: x\r\n\r\n")}
	for seed := range uint64(5) {
		rep := replayed(t, now, then, mixture(seed, &get, func(r *rand.Rand) *sample.Request {
			q := get
			q.Target, q.Asked = []byte("/b"), []sample.Asked{{SSP: "u", Outcome: exchange.NoBid, Hold: time.Duration(r.ExpFloat64() * 100 * float64(time.Millisecond))}}
			return &q
		}))
		testsupport.True(t, rep.SSPs[1].OverLimit == 0 && len(rep.Excess(anyChange)) == 0, "seed %d: %q\n%s", seed, rep.Excess(anyChange), written(rep))
	}
}
