package reports

import (
	"context"
	"fmt"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// KeepAlive counts what a connection per request costs, and which side pays for it with
// adbuffer in between: 500 requests one after the other.
func KeepAlive(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("keepalive", "Keep-alive against a connection per request",
		"What does an application pay that opens a connection for every request, and what is left of it behind adbuffer?")
	n := e.Count(500, 500)
	s, err := e.Rig.StartSSP(rig.SSPOptions{Name: "ssp"})
	if err != nil {
		return nil, err
	}
	proxy, err := e.Rig.StartAdbuffer(ctx, e.Adbuffer, engine.Config{SSPs: []engine.SSPConfig{{Name: "ssp", URL: s.URL, Protocol: "http1"}}}.YAML(), "")
	if err != nil {
		return nil, err
	}
	defer proxy.Stop()
	k := &keepAlive{Env: e, report: r, n: n, ssp: s, proxy: proxy}
	k.table = results.Table{Title: fmt.Sprintf("%d requests one after the other", n),
		Columns: []string{"client", "path", "connection", "seconds", "client's TCP handshakes", "SSP's TCP handshakes"}}
	for _, row := range []struct {
		client, connection, seconds, handshakes string
	}{
		{"curl", "close", "1.27", "500"}, {"curl", "keep-alive", "0.56", "1"},
		{"Node, no agent", "close", "2.20", "500"}, {"Node, keep-alive agent", "keep-alive", "0.90", "1"},
	} {
		k.table.AddTheirs(row.client, "direct", row.connection, row.seconds, row.handshakes, row.handshakes)
	}
	clients := []client{{"generator", k.generator}}
	if e.Has(r, "curl") {
		clients = append(clients, client{"curl", func(ctx context.Context, addr string, close bool) (rig.Sequence, error) {
			return rig.Curl(ctx, "http://"+addr+"/fillbuffer?pub=1", n, close)
		}})
	}
	if e.Has(r, "node") {
		clients = append(clients, client{"Node", func(ctx context.Context, addr string, close bool) (rig.Sequence, error) {
			return rig.Node(ctx, e.Rig.Dir, "http://"+addr+"/fillbuffer?pub=1", n, close)
		}})
	}
	for _, c := range clients {
		if err := k.measure(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	r.Tables = []results.Table{k.table}
	r.Charts = []results.Chart{k.seconds, k.handshakes}
	r.Verdicts = []results.Verdict{{Promise: "an application that opens a connection per request gets keep-alive to the SSP anyway",
		Held: k.worst <= 1, Words: fmt.Sprintf("Of %d requests through adbuffer, each on a connection of its own, the SSP saw at most %d TCP handshake(s) a client.", n, k.worst)}}
	return e.Done(r), nil
}

type client struct {
	name string
	run  func(ctx context.Context, addr string, close bool) (rig.Sequence, error)
}

type keepAlive struct {
	*engine.Env
	report              *results.Report
	n                   int
	ssp                 *rig.SSP
	proxy               *rig.Adbuffer
	table               results.Table
	seconds, handshakes results.Chart
	worst               uint64 // handshakes that the SSP saw behind adbuffer
}

// measure adds a client's four rows.
func (k *keepAlive) measure(ctx context.Context, c client) error {
	if k.seconds.Title == "" {
		k.seconds = results.Chart{Title: fmt.Sprintf("Seconds for %d requests", k.n), Kind: "bar", Y: "seconds"}
		k.handshakes = results.Chart{Title: "TCP handshakes that the SSP saw", Kind: "bar", Y: "handshakes"}
		for _, name := range []string{"direct, close", "direct, keep-alive", "adbuffer, close", "adbuffer, keep-alive"} {
			k.seconds.Series = append(k.seconds.Series, results.Series{Name: name})
			k.handshakes.Series = append(k.handshakes.Series, results.Series{Name: name})
		}
	}
	k.seconds.Labels = append(k.seconds.Labels, c.name)
	k.handshakes.Labels = append(k.handshakes.Labels, c.name)
	i := 0
	for _, path := range []struct{ name, addr string }{{"direct", k.ssp.Addr}, {"adbuffer", k.proxy.Addr}} {
		for _, close := range []bool{true, false} {
			if err := k.ssp.CloseConnections(); err != nil {
				return err
			}
			if err := k.ssp.Reset(); err != nil {
				return err
			}
			s, err := c.run(ctx, path.addr, close)
			if err != nil {
				return err
			}
			seen, err := k.ssp.Counters()
			if err != nil {
				return err
			}
			connection := "keep-alive"
			if close {
				connection = "close"
			}
			var doubts []string
			if s.Answered != k.n || seen.Answered != uint64(k.n) {
				doubts = []string{fmt.Sprintf("%d of %d requests were answered, the SSP answered %d", s.Answered, k.n, seen.Answered)}
				k.report.Doubt(c.name+", "+path.name+", "+connection, doubts)
			}
			k.table.Add(doubts, c.name, path.name, connection, s.Seconds, s.Handshakes, seen.Connections)
			k.seconds.Series[i].Values = append(k.seconds.Series[i].Values, s.Seconds)
			k.handshakes.Series[i].Values = append(k.handshakes.Series[i].Values, float64(seen.Connections))
			i++
			if path.name == "adbuffer" && close {
				k.worst = max(k.worst, seen.Connections)
			}
		}
	}
	return nil
}

// generator sends the requests with our own client, on one connection at a time.
func (k *keepAlive) generator(ctx context.Context, addr string, close bool) (rig.Sequence, error) {
	plan := engine.ClosedLoop(addr, 1, k.n, 0, engine.Get("/fillbuffer?pub=1"))
	if close {
		plan.Protocol = load.Close
	}
	m, err := k.Generate(ctx, plan, 0)
	if err != nil {
		return rig.Sequence{}, err
	}
	return rig.Sequence{Answered: int(m.Whole.Answered), Handshakes: int(m.Connections.TCP), Seconds: m.Whole.Seconds}, nil
}

// steady is an SSP with one latency for all requests.
func steady(latency string) sspsim.Behaviour {
	var b sspsim.Behaviour
	if err := b.UnmarshalJSON([]byte(`{"latency":{"constant":"` + latency + `"}}`)); err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	return b
}
