package tests

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// clientWay is a way in which clients use connections.
type clientWay struct {
	name, protocol, title string
	load                  rig.Load
}

func (c *comparison) clientWays(conns int) []clientWay {
	once := c.request
	once.Headers = slices.Concat(once.Headers, closing)
	return []clientWay{
		{"tls", "clients", "HTTP/1.1 over TLS, 64 clients", rig.WRK(c.request, conns, c.length)},
		{"h2 64x1", "clients", "HTTP/2 over TLS, 64 connections × 1 stream", rig.H2Load(c.request, conns, 1, c.length)},
		{"h2 8x8", "clients", "HTTP/2 over TLS, 8 connections × 8 streams", rig.H2Load(c.request, conns/8, 8, c.length)},
		{"new tls", "clients", "a new TLS connection for each request, 16 at once", rig.WRK(once, 16, c.length)},
		{"1000 clients", "h1", "cleartext HTTP/1.1, 1 000 clients", rig.WRK(c.request, 1000, c.length)},
	}
}

// The loads of a row.
const (
	saturated = iota
	fixed     // at the rate of the options
	fast      // at fastRate
)

// peerLoads holds the loads of a row. A load that is nil is not measured.
type peerLoads [3]rig.Load

// peerRow is a program with a way in which clients or the program use connections, and the figures of its rounds.
type peerRow struct {
	peer, way string
	stage     *rig.Stage
	loads     peerLoads
	check     func() error // returns why responses are wrong

	rounds [len(peerLoads{})]rounds // by load
	doubts []string                 // why the fast load has no figures in some rounds
	void   string                   // why the row has no figures
}

// minShare is the share of its core that a saturated proxy uses at least.
const minShare = 0.85

// measure measures a round. If requests fail, the row is void; if they fail at the fast rate, only that figure is.
func (r *peerRow) measure() {
	var round [len(peerLoads{})]*rig.Figures
	for i, run := range r.loads {
		if run == nil {
			continue
		}
		f, fault := soundly(r.stage, run)
		switch {
		case fault == "":
			round[i] = f
		case i == fast:
			r.doubts = append(r.doubts, "fast: "+fault)
		default:
			r.void = fault
			return
		}
	}
	if f := round[saturated]; f.CPU/f.Seconds < minShare {
		// Other work took the core, or the load was too small.
		f.Doubts = append(f.Doubts, fmt.Sprintf("at saturation it used only %.0f %% of its core", f.CPU/f.Seconds*100))
	}
	for i, f := range round {
		r.rounds[i] = append(r.rounds[i], f)
	}
}

// soundly measures a load. If a request failed or a tool hung, it returns why the figures are void. If the proxy has
// ended, the test ends.
func soundly(s *rig.Stage, run rig.Load) (f *rig.Figures, fault string) {
	f = s.Measure(run.Tolerate(func(_ *rig.Figures, err error) { fault = err.Error() }))
	if fault == "" && (f.Failed > 0 || f.Answered == 0) {
		fault = fmt.Sprintf("%d requests failed, %d did not: %s", f.Failed, f.Answered, f.Kinds())
	}
	return f, fault
}

// settled is how long a program has to free memory, before the idle clients come and again after their
// requests.
const settled = 5 * time.Second

// idleKinds are the kinds of idle clients.
var idleKinds = []string{"cleartext", "TLS", "HTTP/2"}

// idleRow is the memory of a program without and with idle clients.
type idleRow struct {
	peer, kind string
	stage      *rig.Stage

	before, with int64
	perClient    float64 // KiB
	void         string
}

// measure measures the memory of idle clients. Each client has sent one request before.
func (r *idleRow) measure(e *rig.Rig, request load.Template, clients int) {
	s, http2 := r.stage, r.kind == "HTTP/2"
	if release, err := rig.Hold(e.Ctx, s.URL(), request, 50, http2); err == nil {
		release()
		rig.Sleep(e.Ctx, settled)
	}
	before := rig.Must(load.ReadTree(s.PID))(e)
	release, err := rig.Hold(e.Ctx, s.URL(), request, clients, http2)
	if err != nil {
		r.void = err.Error()
		return
	}
	defer release()
	rig.Sleep(e.Ctx, settled)
	after := rig.Must(load.ReadTree(s.PID))(e)
	r.before, r.with, r.perClient = before.RSS, after.RSS, float64(after.RSS-before.RSS)/1024/float64(clients)
}

// ask sends a request to a stage, on a connection of its own.
func ask(ctx context.Context, s *rig.Stage, q load.Template) (*http.Response, []byte, error) {
	return rig.Fetch(ctx, &http.Transport{DisableKeepAlives: true, DisableCompression: true, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, s.URL(), q)
}

// forwards returns an error if a stage does not return exactly the upstream's response.
func forwards(ctx context.Context, s *rig.Stage, q load.Template, want []byte) error {
	resp, body, err := ask(ctx, s, q) //nolint:bodyclose // Fetch closes it
	switch {
	case err != nil:
		return err
	case resp.StatusCode != 200:
		return fmt.Errorf("status %d: %.100q", resp.StatusCode, body)
	case !bytes.Equal(body, want):
		return fmt.Errorf("a body of %d bytes, not the upstream's %d", len(body), len(want))
	case resp.Header.Get("Content-Type") != "application/json":
		return fmt.Errorf("Content-Type %q, not the upstream's", resp.Header.Get("Content-Type"))
	}
	return nil
}

// fansOut returns an error if a response lacks the bid of an SSP.
func fansOut(ctx context.Context, s *rig.Stage, q load.Template) error {
	resp, body, err := ask(ctx, s, q) //nolint:bodyclose // Fetch closes it
	if err != nil {
		return err
	}
	if n := bytes.Count(body, []byte(`"impid":"1"`)); n != legs {
		return fmt.Errorf("status %d with %d of %d bids: %.100q", resp.StatusCode, n, legs, body)
	}
	return nil
}
