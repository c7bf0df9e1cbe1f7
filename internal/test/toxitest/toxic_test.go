package toxitest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// deadline is the default deadline; requests that must succeed have patient. On a busy machine a
// response may be later by the allowance.
const (
	deadline  = 500 * time.Millisecond
	patient   = 5 * time.Second
	allowance = 3 * time.Second
)

// link is an SSP that adbuffer reaches through toxiproxy.
type link struct {
	t     *testing.T
	name  string
	proxy *toxiproxy.Proxy

	mu    sync.Mutex
	posts map[string]int // POSTs that the SSP processed, by their cb
}

// bodySize is the size of a response's body: many TLS records.
const bodySize = 60_000

// startLink starts an SSP, and the proxy in front of it.
func startLink(t *testing.T, name string, protocol sspsim.Protocol, size int) (l *link, config string) {
	t.Helper()
	l = &link{t: t, name: name, posts: map[string]int{}}
	s := e2e.StartSSP(t, sspsim.Options{Protocol: protocol, Behaviour: sspsim.Behaviour{Response: sspsim.Response{Echo: true, Kind: sspsim.Raw, Size: sspsim.Size{Constant: size}}},
		OnRequest: l.seen})
	ca := e2e.CAFile(t, s)
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l.proxy = toxiproxy.NewProxy(server, name, "127.0.0.1:0", s.Addr())
	testsupport.NoError(t, l.proxy.Start())
	t.Cleanup(l.proxy.Stop)
	return l, fmt.Sprintf("  - {name: %s, endpoints: [\"https://%s/bid\"], protocol: auto, breaker: {enabled: false}, tls: {ca_file: %q, server_name: 127.0.0.1}}\n", name, l.proxy.Listen, ca)
}

func (l *link) seen(q *sspsim.Request) {
	if q.Method == "POST" {
		_, cb, _ := strings.Cut(q.Target, "cb=")
		l.mu.Lock()
		l.posts[cb]++
		l.mu.Unlock()
	}
}

// wantOnce checks that no POST was processed twice.
func (l *link) wantOnce() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for cb, n := range l.posts {
		testsupport.True(l.t, n <= 1, "SSP %s processed POST %s %d times", l.name, cb, n)
	}
}

// add adds a toxic to the link; attributes are its attributes in JSON.
func (l *link) add(kind, stream, attributes string) {
	l.t.Helper()
	text := fmt.Sprintf(`{"name":%q,"type":%q,"stream":%q,"toxicity":1,"attributes":%s}`, kind+stream, kind, stream, attributes)
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
		l.t.Fatalf("%s: %v", text, err)
	}
}

func (l *link) heal() { l.proxy.Toxics.ResetToxics(l.t.Context()) }

// wantHealed waits until the SSP responds again.
func wantHealed(t *testing.T, p *e2e.Process, l *link) {
	t.Helper()
	w := &e2e.Worker{Process: p}
	defer w.Close()
	testsupport.Eventually(t, "SSP "+l.name+" responds again", func() bool {
		r, err := ask(w, patient, "GET", l.name, "healed", "")
		return err == nil && r.Status == 200
	})
}

// poison is one toxic, or several at once, and its allowed effects on clients.
type poison struct {
	name string
	add  func(l *link)
	// all: the SSP responds to every request.
	all bool
	// none: the SSP responds to no request.
	none bool
}

var poisons = []poison{
	{"latency", func(l *link) { l.add("latency", "downstream", `{"latency":40,"jitter":20}`) }, true, false},
	{"slices", func(l *link) {
		l.add("slicer", "downstream", `{"average_size":700,"size_variation":600,"delay":50}`)
		l.add("slicer", "upstream", `{"average_size":200,"size_variation":150,"delay":50}`)
	}, true, false},
	{"enough bandwidth", func(l *link) { l.add("bandwidth", "downstream", `{"rate":4000}`) }, true, false},
	{"too little bandwidth", func(l *link) { l.add("bandwidth", "downstream", `{"rate":20}`) }, false, true},
	{"immediate resets", func(l *link) { l.add("reset_peer", "downstream", `{"timeout":0}`) }, false, true},
	{"resets later", func(l *link) { l.add("reset_peer", "upstream", `{"timeout":15}`) }, false, false},
	{"silence", func(l *link) { l.add("timeout", "downstream", `{"timeout":0}`) }, false, true},
	{"the end within a response", func(l *link) { l.add("limit_data", "downstream", `{"bytes":30000}`) }, false, true},
}

var ways = []struct {
	name     string
	protocol sspsim.Protocol
}{{"http1", sspsim.TLSHTTP1}, {"http2", sspsim.TLSHTTP2}}

// With any toxic in front of one SSP, each request gets its own whole response in time, and no POST
// is processed twice. Requests to the other SSP succeed.
func TestToxicsOnTheWayToAnSSP(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			ill, illConfig := startLink(t, "ill", way.protocol, bodySize)
			well, wellConfig := startLink(t, "well", way.protocol, bodySize)
			p := start(t, fmt.Sprintf("deadline: {default: %v}\nssps:\n%s%sroutes:\n  - {name: default, match: {path: /fillbuffer}, client_choice: true, ssps: [ill, well]}\n", deadline, illConfig, wellConfig))
			wantHealed(t, p, ill)
			for _, poison := range poisons {
				poison.add(ill)
				within := deadline
				if poison.all {
					within = patient
				}
				var responded, asked, wellFailed atomic.Int64
				p.Concurrently(6, func(w *e2e.Worker) error {
					for n := range 6 {
						method, body, l, within := "GET", "", ill, within
						if n%2 == 0 {
							method, body = "POST", strings.Repeat("b", 5000)
						}
						if w.Id%3 == 2 {
							l, within = well, patient
						}
						r, err := ask(w, within, method, l.name, fmt.Sprintf("%s-%d-%d", strings.ReplaceAll(poison.name, " ", "_"), w.Id, n), body)
						switch {
						case err != nil:
							return fmt.Errorf("%s: %w", poison.name, err)
						case l == ill && r.Status == 200:
							responded.Add(1)
						case l == well && r.Status != 200:
							wellFailed.Add(1)
						}
						if l == ill {
							asked.Add(1)
						}
					}
					return nil
				})
				testsupport.Equal(t, wellFailed.Load(), 0, "%[2]s: %[1]d requests to the other SSP failed", poison.name)
				if n := responded.Load(); poison.all && n != asked.Load() || poison.none && n != 0 {
					t.Errorf("%s: the SSP responded to %d of %d requests", poison.name, n, asked.Load())
				}
				ill.heal()
				wantHealed(t, p, ill)
			}
			ill.wantOnce()
			well.wantOnce()
		})
	}
}

// Toxics are added and removed at random while requests are in flight.
func TestToxicsThatComeAndGo(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			l, config := startLink(t, "ill", way.protocol, bodySize)
			p := start(t, fmt.Sprintf("deadline: {default: %v}\nssps:\n%sroutes:\n  - {name: default, match: {path: /fillbuffer}, client_choice: true, ssps: [ill]}\n", deadline, config))
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			var stopped atomic.Bool
			var clients sync.WaitGroup
			clients.Go(func() {
				p.Concurrently(8, func(w *e2e.Worker) error {
					for n := 0; !stopped.Load(); n++ {
						method, body := "GET", ""
						if n%2 == 0 {
							method, body = "POST", "body"
						}
						if _, err := ask(w, deadline, method, l.name, fmt.Sprintf("%d-%d", w.Id, n), body); err != nil {
							return err
						}
						time.Sleep(2 * time.Millisecond)
					}
					return nil
				})
			})
			for range 20 {
				poisons[rnd.IntN(len(poisons))].add(l)
				time.Sleep(time.Duration(rnd.IntN(150)) * time.Millisecond)
				l.heal()
				time.Sleep(time.Duration(rnd.IntN(150)) * time.Millisecond)
			}
			stopped.Store(true)
			clients.Wait()
			wantHealed(t, p, l)
			l.wantOnce()
		})
	}
}
