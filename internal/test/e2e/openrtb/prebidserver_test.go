package openrtb

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// prebidServer is Prebid Server's module, and its program. The tests run v0.275.0.
const prebidServer = "github.com/prebid/prebid-server"

// adapters are adapters of Prebid Server, with their parameters. bidstack sends Authorization, and bodies in gzip.
var adapters = map[string]string{
	"appnexus": `{"placement_id":1}`, "openx": `{"unit":"1","delDomain":"d.example.com"}`, "pubmatic": `{"publisherId":"1"}`,
	"sharethrough": `{"pkey":"p"}`, "bidstack": `{"publisherId":"355cf800-8348-433a-9d95-70345fa70afc"}`,
}

// bidders are the servers behind the adapters.
type bidders struct {
	*httptest.Server
	mu     sync.Mutex
	bodies map[string][]string // what each bidder received since the last call of received
}

func newBidders(t *testing.T) *bidders {
	b := &bidders{bodies: make(map[string][]string)}
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.Close)
	return b
}

func (b *bidders) serve(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	body, _ := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err == nil {
			body, err = io.ReadAll(z)
		}
		if err != nil {
			body = []byte(err.Error())
		}
	}
	b.mu.Lock()
	b.bodies[name] = append(b.bodies[name], string(body))
	b.mu.Unlock()
	switch {
	case name == "hangs":
		<-r.Context().Done()
		return
	case name == "bidstack" && r.Header.Get("Authorization") != "Bearer 355cf800-8348-433a-9d95-70345fa70afc":
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var q struct {
		ID  string
		Imp []struct{ ID string }
	}
	json.Unmarshal(body, &q)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":%q,"cur":"USD","seatbid":[{"bid":[{"id":"%s-bid","impid":%q,"price":1.25,"adm":"<VAST/>","crid":"c","w":300,"h":250,"ext":{"appnexus":{"bid_ad_type":0},"BidType":0}}]}]}`,
		q.ID, name, q.Imp[0].ID)
}

// received returns what each bidder has received since the last call, sorted, since an adapter may send two requests at
// once.
func (b *bidders) received() map[string][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.bodies
	b.bodies = make(map[string][]string)
	for _, bodies := range all {
		slices.Sort(bodies)
	}
	return all
}

// startPrebidServer runs Prebid Server, and returns its URL. endpoint returns the endpoint of an adapter.
func startPrebidServer(t *testing.T, endpoint func(name string) string) string {
	t.Helper()
	dir := t.TempDir()
	testsupport.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module pbs\n\ngo 1.26.0\n"), 0o600))
	run := func(args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod")
		return strings.TrimSpace(testsupport.Output(t, cmd))
	}
	run("get", "-tool", prebidServer+"@v0.275.0")
	program := run("tool", "-n", prebidServer)                                                                                                   // go keeps it for the next test
	testsupport.NoError(t, os.Symlink(filepath.Join(run("list", "-m", "-f", "{{.Dir}}", prebidServer), "static"), filepath.Join(dir, "static"))) // what adapters can do
	addr := testsupport.FreeAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	_, adminPort, _ := strings.Cut(testsupport.FreeAddr(t), ":")
	config := fmt.Sprintf("host: 127.0.0.1\nport: %s\nadmin_port: %s\nstatus_response: ok\ngdpr: {enabled: false, default_value: \"0\"}\n"+
		"currency_converter: {fetch_interval_seconds: 0}\nauction_timeouts_ms: {default: 60000, max: 60000}\nadapters:\n", port, adminPort)
	for name := range adapters {
		config += fmt.Sprintf("  %s: {endpoint: %q}\n", name, endpoint(name))
	}
	testsupport.NoError(t, os.WriteFile(filepath.Join(dir, "pbs.yaml"), []byte(config), 0o600))
	cmd := exec.Command(program, "-alsologtostderr")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HTTPS_PROXY=http://127.0.0.1:1") // at its start, it would fetch lists of vendors
	testsupport.StartDaemon(t, "tcp", addr, cmd)
	return "http://" + addr + "/openrtb2/auction"
}

// auction is a BidRequest that all adapters take.
func auction(id, tmax int) string {
	var params []string
	for name, p := range adapters {
		params = append(params, fmt.Sprintf("%q:%s", name, p))
	}
	slices.Sort(params)
	return fmt.Sprintf(`{"id":"a%d","tmax":%d,"imp":[{"id":"i","banner":{"format":[{"w":300,"h":250}]},"video":{"mimes":["video/mp4"],"w":300,"h":250,"protocols":[2],"minduration":1,"maxduration":9},`+
		`"ext":{"tid":"t","prebid":{"bidder":{%s}}}}],"app":{"id":"1","bundle":"b","publisher":{"id":"1"}},"device":{"ua":"u","ip":"203.0.113.9"},"source":{"tid":"t"}}`, id, tmax, strings.Join(params, ","))
}

// seats returns the bids of an auction by their seat.
func seats(t *testing.T, body string) map[string]string {
	t.Helper()
	var res struct {
		SeatBid []struct {
			Seat string
			Bid  json.RawMessage
		}
	}
	if body != "" {
		testsupport.NoError(t, json.Unmarshal([]byte(body), &res))
	}
	all := make(map[string]string)
	for _, s := range res.SeatBid {
		all[s.Seat] = string(s.Bid)
	}
	return all
}

func needsPrebidServer(t *testing.T) {
	t.Helper()
	if os.Getenv("ADBUFFER_PREBID") == "" {
		t.Skip("compiles Prebid Server, which takes minutes; make prebid runs it")
	}
}

// Prebid Server gets the same bids, and its bidders the same bodies, with adbuffer between them as without it. Without
// headers.pass, only the bidder that needs Authorization bids nothing. The log says what adbuffer adds to the time of an
// auction: the three Prebid Servers take turns, so that a busy machine slows all of them.
func TestPrebidServerGetsTheSameBidsThroughAdbuffer(t *testing.T) {
	needsPrebidServer(t)
	const auctions, warmUp, secret = 1000, 50, "bidstack"
	type chain struct {
		pass    string // headers.pass; empty without adbuffer
		bidders *bidders
		url     string // of Prebid Server
		bids    []map[string]string
		took    []time.Duration
	}
	var chains []*chain
	for _, pass := range []string{"", "[Authorization]", "[]"} {
		c := &chain{pass: pass, bidders: newBidders(t)}
		at := c.bidders.URL
		if pass != "" {
			config, names := "", ""
			for name := range adapters {
				config += fmt.Sprintf("  - {name: %s, endpoints: [%q], headers: {pass: %s}}\n", name, at+"/"+name, pass)
				names += name + ", "
			}
			ab := e2e.Start(t, "ssps:\n"+config+"routes: [{name: default, match: {path: /fillbuffer}, ssps: ["+names+"], client_choice: true}]\n")
			at = "http://" + ab.TrafficAddr + "/fillbuffer"
		}
		c.url = startPrebidServer(t, func(name string) string { return at + "/" + name })
		chains = append(chains, c)
	}
	for i := range warmUp + auctions {
		for turn := range chains {
			c := chains[(i+turn)%len(chains)]
			began := time.Now()
			res, err := http.Post(c.url, "application/json", strings.NewReader(auction(i, 50_000)))
			testsupport.NoError(t, err)
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			testsupport.NoError(t, err)
			c.took = append(c.took, time.Since(began))
			c.bids = append(c.bids, seats(t, string(body)))
		}
	}
	direct := chains[0]
	testsupport.MustEqual(t, len(direct.bids[0]), len(adapters), "%d bidders bid without adbuffer: %[2]v", direct.bids[0])
	bodies := direct.bidders.received()
	for _, c := range chains {
		c.took = c.took[warmUp:]
		slices.Sort(c.took)
		median, p99 := c.took[auctions/2], c.took[auctions*99/100]
		if c == direct {
			t.Logf("without adbuffer, an auction takes %v at the median and %v at p99", median, p99)
			continue
		}
		t.Logf("headers.pass %s: an auction takes %v at the median and %v at p99: adbuffer adds %v and %v",
			c.pass, median, p99, median-direct.took[auctions/2], p99-direct.took[auctions*99/100])
		for _, bids := range direct.bids {
			if c.pass == "[]" {
				delete(bids, secret)
			}
		}
		testsupport.Equal(t, cmp.Diff(direct.bids, c.bids), "", "headers.pass %[2]s: the bids are, -want +got:\n%[1]s", c.pass)
		testsupport.Equal(t, cmp.Diff(bodies, c.bidders.received()), "", "headers.pass %[2]s: the bidders got, -want +got:\n%[1]s", c.pass)
	}
}

// Prebid Server accepts the supply chain that the shipped exchange makes, in the place of OpenRTB 2.6 and in that of 2.5,
// and its bidders get the whole chain. Prebid Server refuses a node whose sid is a number.
func TestPrebidServerAcceptsTheSupplyChainOfTheExchange(t *testing.T) {
	needsPrebidServer(t)
	b := newBidders(t)
	url := startPrebidServer(t, func(name string) string { return b.URL + "/" + name })
	env := e2e.Patient()
	for _, name := range []string{"EUROPE", "AMERICA", "DISPLAY", "VIDEO", "CONTEXTUAL"} {
		env = append(env, "ADBUFFER_SSPS_"+name+"_ENDPOINTS_0="+url)
	}
	const (
		file    = "../../../../config/openrtb.yaml"
		sellers = `{"asi":"seller.example","sid":"7","hp":1,"rid":"r","ext":{"x":1}},{"asi":"agency.example","sid":"8","name":"n","domain":"d.example","hp":0}`
		node    = `{"asi":"exchange.example","sid":"1234","hp":1}`
	)
	broken := strings.NewReplacer(`sid: "1234"`, "sid: 1234", "on_error: no_ad", "on_error: status").Replace(e2e.ReadFile(t, file))
	exchange, breaking := e2e.Serve(t, file, env...), e2e.Serve(t, e2e.WriteConfig(t, broken), env...)
	chain := func(complete int, nodes ...string) string {
		return fmt.Sprintf(`{"ver":"1.0","complete":%d,"nodes":[%s]}`, complete, strings.Join(nodes, ","))
	}
	full, partial := chain(1, sellers), chain(0, sellers)
	for i, row := range []struct{ source, want string }{
		{`"tid":"t"`, chain(1, node)},
		{`"schain":` + full, chain(1, sellers, node)},
		{`"schain":` + partial, chain(0, sellers, node)},
		{`"ext":{"schain":` + full + `}`, chain(1, sellers, node)},
		{`"ext":{"schain":` + partial + `}`, chain(0, sellers, node)},
		{`"schain":` + partial + `,"ext":{"schain":` + partial + `}`, chain(0, sellers, node)},
	} {
		// The GDPR applies and there is no consent string, so only one SSP gets the request.
		body := strings.Replace(auction(i, 50_000), `"source":{"tid":"t"}`, `"regs":{"gdpr":1},"source":{`+row.source+`}`, 1)
		bids := seats(t, exchange.Post("/openrtb2/auction", body).WantStatus(row.source, 200).Body)
		testsupport.Equal(t, len(bids), len(adapters), "%[2]s: %[1]d bidders bid", row.source)
		received := b.received()
		testsupport.Equal(t, len(received), len(adapters), "%[2]s: %[1]d bidders were asked", row.source)
		want := slices.Repeat([]any{decoded([]byte(row.want))}, max(1, strings.Count(row.source, "schain")))
		for name, bodies := range received {
			for _, text := range bodies {
				var got []any
				for _, path := range []string{"source.schain", "source.ext.schain", "ext.schain"} { // appnexus moves the second one to the third
					got = append(got, members(decoded([]byte(text)), strings.Split(path, "."))...)
				}
				testsupport.Equal(t, cmp.Diff(want, got), "", "%[2]s: %[3]s got the chains, -want +got:\n%[1]s", row.source, name)
			}
		}
		refusal := breaking.Post("/openrtb2/auction", body).WantStatus(row.source+", and a broken node", 400).Body
		testsupport.True(t, strings.Contains(refusal, "nodes.sid of type string"), "%s, and a broken node: %s", row.source, refusal)
		testsupport.Equal(t, len(b.received()), 0, "%[2]s: %[1]d bidders got the broken node", row.source)
	}
}

// Prebid Server waits its whole tmax for a bidder that hangs, and then responds with the bids of the others. With
// tmax_margin this is before the deadline. All auctions run at once, with a tmax that is long for a busy machine too.
func TestPrebidServerIsInTimeWithAMargin(t *testing.T) {
	needsPrebidServer(t)
	b := newBidders(t)
	url := startPrebidServer(t, func(name string) string {
		if name == "openx" {
			name = "hangs"
		}
		return b.URL + "/" + name
	})
	const auctions, tmax = 30, 20_000
	for _, c := range []struct{ margin, least, most int }{{0, 0, 27}, {tmax / 2, 28, 30}} {
		ab := e2e.Start(t, fmt.Sprintf("deadline: {openrtb_tmax: true}\nssps: [{name: pbs, endpoints: [%q], rewrite_tmax: true, tmax_margin: %dms}]\nroutes: [{name: default, match: {path: /bids}, ssps: [pbs]}]\n", url, c.margin))
		var bodies [auctions]string
		ab.Concurrently(auctions, func(w *e2e.Worker) error {
			a, err := w.Exchange("POST", "/bids", auction(w.Id, tmax))
			if err == nil {
				bodies[w.Id] = a.Body
			}
			return err
		})
		withBids := 0
		for _, body := range bodies {
			if len(seats(t, body)) >= len(adapters)-1 {
				withBids++
			}
		}
		t.Logf("tmax %d ms, margin %d ms: %d of %d auctions keep the other bids", tmax, c.margin, withBids, auctions)
		testsupport.Between(t, withBids, c.least, c.most, "margin %[2]d ms: %[1]d auctions keep the other bids", c.margin)
	}
}
