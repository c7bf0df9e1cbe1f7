package tests

import (
	"fmt"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// sequence is how many requests keepAlive sends one after the other.
const sequence = 500

// keepAlive sends requests one after the other. It measures the cost of a connection per request,
// and counts the handshakes on both sides of adbuffer.
func keepAlive(e *rig.Rig) {
	t := e.Rep.Table(fmt.Sprintf("%d requests one after the other", sequence),
		"client", "path", "connection", "seconds", "client's TCP handshakes", "SSP's TCP handshakes")
	t.AddTheirs("curl", "direct", "close", "1.27", "500", "500")
	t.AddTheirs("curl", "direct", "keep-alive", "0.56", "1", "1")
	t.AddTheirs("Node, no agent", "direct", "close", "2.20", "500", "500")
	t.AddTheirs("Node, keep-alive agent", "direct", "keep-alive", "0.90", "1", "1")
	var handshakes uint64 // of the SSP with adbuffer, whose client opens a connection for each request
	for _, path := range []string{"direct", "adbuffer"} {
		for _, connection := range []string{"close", "keep-alive"} {
			e.Next("keepalive: %s, %s", path, connection)
			f := sendSequence(e, path == "direct", connection == "close")
			t.Add(f.Doubts, "generator", path, connection, f.Seconds, f.Connections, f.SSP.Connections)
			if path == "adbuffer" && connection == "close" {
				handshakes = f.SSP.Connections
			}
		}
	}
	e.Rep.Promise("an application that opens a connection per request gets keep-alive to the SSP anyway", handshakes <= 1, nil,
		"Of %v requests through adbuffer, each on a connection of its own, the SSP saw %v TCP handshake(s).", sequence, handshakes)
}

func sendSequence(e *rig.Rig, direct, close bool) *rig.Figures {
	setup := rig.Setup{SSPs: []*rig.SSP{{Name: "ssp", Protocol: "http1"}}, Anywhere: true}
	if direct {
		setup.Program = "direct"
	}
	s := e.Start(setup)
	defer s.Stop()
	// No connection that adbuffer has already opened may save a handshake.
	s.SSPs[0].CloseConnections()
	plan := rig.ClosedLoop(1, sequence, 0, small)
	if close {
		plan.Protocol = load.Close
	}
	f := s.Measure(rig.Generate(plan, false))
	if f.Answered != sequence || f.SSP.Responded != sequence {
		f.Doubts = append(f.Doubts, fmt.Sprintf("%d of %d requests succeeded, the SSP sent %d responses", f.Answered,
			sequence, f.SSP.Responded))
	}
	return f
}

// pipeline sends 10 000 GETs in three ways: pipelined on 100 connections, by 100 workers on
// keep-alive connections, and all at once.
func pipeline(e *rig.Rig) {
	conns, each := e.Count(100, 100), 100
	n := conns * each
	e.Rep.Note("Responses on one client connection come in order, one after the other: a client that pipelines into " +
		"adbuffer saves round trips, not the SSP's time.")
	t := e.Rep.Table(fmt.Sprintf("%d GETs to an SSP that takes 5 ms", n),
		"way of sending", "path", "seconds", "requests/s", "client CPU s", "client connections", "SSP connections",
		"p99 ms")
	t.AddTheirs("100 pipelines of 100 requests", "direct", "~5", "", "low", "100")
	t.AddTheirs("100 workers, keep-alive", "direct", "~25", "", "saturated", "100")
	t.AddTheirs("10 000 at once", "direct", "> 60", "", "saturated")

	behaviour := steady(5 * time.Millisecond)
	// The SSP processes pipelined requests at the same time, as a server with workers does.
	behaviour.Connections.PipelineOverlap = true
	pool := limits(conns, n, "30s")
	atOnce := map[string]float64{} // requests/s by adbuffer's protocol
	var doubts []string            // about the figures in atOnce
	for _, path := range []struct{ name, program, protocol, pool string }{
		{"direct", "direct", "", ""},
		{fmt.Sprintf("adbuffer, pool of %d", conns), "", "http1", pool},
		{"adbuffer, pipelined to the SSP", "", "http1-pipelined", pool + ", pipeline_depth: 100"},
	} {
		for _, way := range []struct {
			name string
			set  func(*load.Plan)
		}{
			{fmt.Sprintf("%d pipelines of %d requests", conns, each),
				func(p *load.Plan) { p.Protocol, p.Depth = load.Pipelined, each }},
			{fmt.Sprintf("%d workers, keep-alive", conns), func(*load.Plan) {}},
			{fmt.Sprintf("%d at once", n), func(p *load.Plan) { p.Connections = n }},
		} {
			e.Next("pipeline: %s, %s", way.name, path.name)
			plan := rig.ClosedLoop(conns, n, 0, small)
			plan.Timeout = time.Minute
			way.set(&plan)
			f := e.Once(rig.Setup{Program: path.program, Anywhere: true,
				Config: rig.Config{Deadline: "30s"},
				// 10 000 new clients keep adbuffer busy for longer than the default timeouts.connect.
				SSPs: []*rig.SSP{{Name: "ssp", Protocol: path.protocol, Pool: path.pool, Behaviour: behaviour,
					More: []string{"timeouts: {connect: 5s}"}}},
			}, rig.Generate(plan, false))
			t.Add(f.Doubts, way.name, path.name, f.Seconds, f.Rate, f.ClientCPU, f.Connections, f.SSP.Connections,
				f.Latency.P99)
			if plan.Connections == n {
				atOnce[path.protocol], doubts = f.Rate, append(doubts, f.Doubts...)
			}
		}
	}
	pooled, pipelined := atOnce["http1"], atOnce["http1-pipelined"]
	e.Rep.Promise("requests of clients that do not pipeline are pipelined to the SSP, and gain by it", pipelined > pooled,
		doubts, "All at once through adbuffer: %v requests/s over a pool of %v connections, %v/s over as many pipelines.",
		pooled, conns, pipelined)
}
