package tests

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

const (
	exchangeRate      = 1000 // bid requests a second
	exchangeRounds    = 5
	exchangeSSPs      = 5
	exchangeCountries = 10
	sspCountries      = 3 // from which an SSP wants requests
)

// countriesOf returns the countries from which the SSP of an index wants requests. Each country has one or two SSPs.
func countriesOf(ssp int) (codes []string) {
	for i := range sspCountries {
		codes = append(codes, fmt.Sprintf("C%d", (2*ssp+i)%exchangeCountries))
	}
	return codes
}

// sspsOf returns the SSPs that want requests from a country.
func sspsOf(country string) (names []string) {
	for i := range exchangeSSPs {
		if slices.Contains(countriesOf(i), country) {
			names = append(names, fmt.Sprintf("ssp%d", i))
		}
	}
	return names
}

// auctions returns bid requests of 1.3 KB, a template for each country. A member names the SSPs that would bid.
func auctions() (all []load.Template) {
	for i := range exchangeCountries {
		country := fmt.Sprintf("C%d", i)
		body := `{"id":"` + load.Number + `","at":2,"imp":[{"id":"1","tagid":"top","secure":1,"bidfloor":0.42,"banner":{"w":300,"h":250,"api":[3,5,6]}}],` +
			`"site":{"id":"4711","domain":"publisher.example","page":"https://publisher.example/news/12345","publisher":{"id":"123456"}},` +
			`"device":{"ua":"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X)","ip":"203.0.113.77","geo":{"country":"` + country + `"},"devicetype":4},` +
			`"user":{"eids":"` + strings.Repeat("e", 800) + `"},"ext":{"bidders":"` + strings.Join(sspsOf(country), " ") + `"}}`
		all = append(all, load.Template{Name: country, Method: "POST", Path: "/bid", Literal: body,
			Headers: []load.Field{{Name: "Content-Type", Value: "application/json"}}})
	}
	return all
}

// exchangeRow is a way to ask the SSPs, and what its rounds measured.
type exchangeRow struct {
	asks, proxy string
	filters     bool
	stage       *rig.Stage // its SSPs are those of the market
	rounds      rounds
}

// fills returns the share of the requests that got a bid.
func (r *exchangeRow) fills() float64 {
	bids := uint64(0)
	for _, f := range r.rounds {
		bids += f.Statuses[200]
	}
	return share(bids, r.rounds.counts().Answered)
}

// queries returns how many queries the SSPs got, and how many they wanted.
func (r *exchangeRow) queries() (got, wanted uint64) {
	for _, f := range r.rounds {
		got += f.SSP.Responded
		for _, class := range f.Classes {
			wanted += class.Answered * uint64(len(sspsOf(class.Name)))
		}
	}
	return got, wanted
}

// exchange sends bid requests to five SSPs with filters and without: to all of them, and to one of them, as HAProxy
// can too.
func exchange(e *rig.Rig) {
	e.Rep.Note("Each SSP bids for requests from %d of %d countries; its filter matches these, 30 %% of the requests. HAProxy "+
		"asks one server for each request. So it has rows for one SSP only.", sspCountries, exchangeCountries)
	ssps := rig.Setup{Program: "direct"}
	for i := range exchangeSSPs {
		name := fmt.Sprintf("ssp%d", i)
		ssps.SSPs = append(ssps.SSPs, &rig.SSP{Name: name, Behaviour: sspsim.Behaviour{
			Latency: sspsim.Constant(5 * time.Millisecond), Response: sspsim.Response{BidFor: name}}})
	}
	market := e.Start(ssps)
	defer market.Stop()
	var rows []*exchangeRow
	for _, p := range []struct{ asks, proxy, mode string }{{"all five", "adbuffer", "mode: parallel-all, merge: openrtb"},
		{"one", "adbuffer", "mode: split"}, {"one", "HAProxy", ""}} {
		if p.proxy == "HAProxy" && !e.Has("haproxy") {
			continue
		}
		for _, filters := range []bool{false, true} {
			row := &exchangeRow{asks: p.asks, proxy: p.proxy, filters: filters, stage: e.Start(exchangeSetup(ssps.SSPs, p.mode, filters))}
			defer row.stage.Stop()
			row.stage.SSPs = market.SSPs
			rows = append(rows, row)
		}
	}
	loaded := func(length time.Duration, expected bool) rig.Load {
		p := rig.OpenLoop(64, exchangeRate, 0, length, auctions()...)
		p.Statuses = []int{200, 204}
		return rig.Generate(p, expected)
	}
	for n := range exchangeRounds {
		for _, row := range rows {
			e.Next("exchange: %s asks %s, filters: %v, round %d of %d", row.proxy, row.asks, row.filters, n+1, exchangeRounds)
			row.stage.Measure(loaded(500*time.Millisecond, true)) // a warm-up, whose queries do not count
			row.rounds = append(row.rounds, row.stage.Measure(loaded(e.Time(6*time.Second, time.Second), false)))
		}
	}
	t := e.Rep.Table(fmt.Sprintf("%d bid requests/s of 1.3 KB to five SSPs of 5 ms; medians of %d rounds in turn", exchangeRate,
		exchangeRounds), "asks", "proxy", "filters", "queries/request", "fills", "CPU µs/request", "p99 ms")
	for _, row := range rows {
		got, _ := row.queries()
		t.Add(row.rounds.doubts(), row.asks, row.proxy, map[bool]string{false: "no", true: "yes"}[row.filters],
			share(got, row.rounds.counts().Answered), results.Percent(row.fills()), spread(row.rounds.values(cpuUs)), row.rounds.median(p99))
	}
	judgeExchange(e.Rep, rows)
}

// exchangeSetup returns the setup of adbuffer with a mode, or of HAProxy for the mode "".
func exchangeSetup(ssps []*rig.SSP, mode string, filters bool) rig.Setup {
	var legs []string
	route := &rig.Route{Name: "exchange"}
	for i, s := range ssps {
		route.Upstreams = append(route.Upstreams, strings.TrimSuffix(s.URLs[0], "/bid"))
		leg := "{name: " + s.Name
		if filters {
			route.Member, route.Values = "$.device.geo.country", append(route.Values, countriesOf(i))
			leg += ", when: [{path: device.geo.country, in: [" + strings.Join(countriesOf(i), ", ") + "]}]"
		}
		legs = append(legs, leg+"}")
	}
	if mode == "" {
		return rig.Setup{Program: "haproxy", Route: route}
	}
	if filters {
		mode = strings.Replace(mode, "split", "single", 1) // the first SSP whose filter matches
	}
	return rig.Setup{SSPs: ssps, OneCore: true, Config: rig.Config{Deadline: "2s", Routes: []string{
		fmt.Sprintf("{name: exchange, match: {path: /bid}, %s, ssps: [%s]}", mode, strings.Join(legs, ", "))}}}
}

func judgeExchange(r *results.Report, rows []*exchangeRow) {
	by := map[string]*exchangeRow{}
	for _, row := range rows {
		by[fmt.Sprintf("%s asks %s, filters: %v", row.proxy, row.asks, row.filters)] = row
	}
	all, some := by["adbuffer asks all five, filters: false"], by["adbuffer asks all five, filters: true"]
	cpu := func(r *exchangeRow) float64 { return r.rounds.median(cpuUs) }
	doubts := some.rounds.doubts()
	got, wanted := some.queries()
	r.Promise("with filters the SSPs get the queries that they want, and no others", got == wanted, doubts,
		"They got %v queries and wanted %v.", got, wanted)
	r.Promise("filters cost no fill", some.fills() >= all.fills(), doubts, "%s of the requests with filters, %s without.",
		results.Percent(some.fills()), results.Percent(all.fills()))
	r.Promise("filters save more CPU than they cost", cpu(some) < cpu(all), append(all.rounds.doubts(), doubts...),
		"%v µs a request with filters, %v without.", cpu(some), cpu(all))
	one, theirs := by["adbuffer asks one, filters: true"], by["HAProxy asks one, filters: true"]
	if theirs == nil {
		return
	}
	r.Promise("to choose one SSP by the body costs at most 1.5 of HAProxy's CPU", cpu(one) <= 1.5*cpu(theirs),
		slices.Concat(one.rounds, theirs.rounds).doubts(), "%v µs a request, HAProxy %v.", cpu(one), cpu(theirs))
}
