package failing

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// nginx is a real nginx that closes connections after 1000 requests, and after 2 s without a
// request, without announcing it.
type nginx struct {
	cleartext, encrypted string // URLs
	ca                   string // file with its authority
	log                  string // file with a line for each request: method, and cb
}

// startNginx runs Debian's nginx for the length of the test.
func startNginx(t testing.TB) *nginx {
	t.Helper()
	dir := t.TempDir()
	ca, err := sspsim.NewCA()
	testsupport.NoError(t, err)
	cert, err := ca.ServerCert("127.0.0.1")
	testsupport.NoError(t, err)
	testsupport.NoError(t, sspsim.WriteKeyPair(cert, dir+"/cert.pem", dir+"/key.pem"))
	cleartext, encrypted := testsupport.FreeAddr(t), testsupport.FreeAddr(t)
	n := &nginx{ca: dir + "/ca.pem", log: dir + "/access.log", cleartext: "http://" + cleartext + "/bid", encrypted: "https://" + encrypted + "/bid"}
	testsupport.NoError(t, ca.WriteFile(n.ca))
	testsupport.StartNginx(t, dir, encrypted, fmt.Sprintf(`
	log_format ids '$request_method $arg_cb';
	access_log access.log ids;
	keepalive_requests 400;
	keepalive_timeout 2s;
	client_header_timeout 2s; # of a connection that adbuffer opened and did not use
	server {
		listen %s;
		listen %s ssl http2;
		ssl_certificate cert.pem;
		ssl_certificate_key key.pem;
		location / {
			add_header X-Echo $arg_cb;
			return 200 '{"id":"$arg_cb","method":"$request_method"}';
		}
	}`, cleartext, encrypted))
	return n
}

// processedTwice returns the requests with this method that nginx processed more
// than once.
func processedTwice(t testing.TB, n *nginx, method string) (twice []string) {
	t.Helper()
	text, err := os.ReadFile(n.log)
	testsupport.NoError(t, err)
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		id, ok := strings.CutPrefix(line, method+" ")
		if ok && seen[id] {
			twice = append(twice, id)
		}
		seen[id] = true
	}
	testsupport.AtLeast(t, len(seen), nginxRequests, "nginx has logged %d requests")
	return twice
}

// nginxRequests are how many GETs and how many POSTs each protocol must carry.
const nginxRequests = 4000

// The SSP has keepalive_requests 400, and an idle timeout shorter than adbuffer's. No client sees
// an error, and no response reaches another request.
func TestNginxClosingConnectionsIsNotSeenByClients(t *testing.T) {
	for _, row := range []struct {
		name     string
		url      func(*nginx) string
		settings []string
	}{
		{"http1", func(n *nginx) string { return n.cleartext }, []string{"protocol: http1"}},
		{"http1 over TLS", func(n *nginx) string { return n.encrypted }, []string{"protocol: http1"}},
		{"pipelined 8 deep", func(n *nginx) string { return n.cleartext }, []string{"protocol: http1-pipelined"}},
		{"pipelined 64 deep", func(n *nginx) string { return n.cleartext }, []string{"protocol: http1-pipelined", "pool: {pipeline_depth: 64, pipeline_methods: all, max_conns: 4}"}},
		{"http2 over TLS", func(n *nginx) string { return n.encrypted }, []string{"protocol: http2"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := startNginx(t)
			ab := e2e.Start(t, e2e.Single(row.url(n), append(row.settings, "tls: {ca_file: "+n.ca+"}")...))
			for _, method := range []string{"GET", "POST"} {
				lost, closed := exchangeAll(t, ab, method)
				// nginx may close a connection between adbuffer's check and the request's
				// arrival. A GET is sent again. A POST may have been processed and is not.
				if lost > 0 && (method == "GET" || lost > nginxRequests/1000+closed/5) {
					t.Errorf("%s: %d of %d were lost", method, lost, nginxRequests)
				}
			}
			if twice := processedTwice(t, n, "POST"); len(twice) > 0 {
				t.Errorf("nginx processed these POSTs twice: %v", twice)
			}
			// nginx must have closed connections, or the test shows nothing.
			if m := ab.Scrape(); m.Sum("adbuffer_pool_connections_opened_total") < 20 {
				t.Errorf("only %v connections were opened", m.Sum("adbuffer_pool_connections_opened_total"))
			}
		})
	}
}

// exchangeAll sends nginxRequests over 16 connections. Each request has a number that its response
// must have. It returns how many requests failed, and how many connections nginx closed meanwhile.
// The requests are sent in parts. Between two parts nginx closes all connections. The next part
// begins after adbuffer has noticed that, so a slow machine loses no request because of it.
func exchangeAll(t *testing.T, ab *e2e.Process, method string) (lost, closed int) {
	t.Helper()
	const opened = "adbuffer_pool_connections_opened_total"
	before := ab.Scrape().Sum(opened)
	var all e2e.Tally
	began := time.Now()
	body := ""
	if method == "POST" {
		body = `{"id":"1","imp":[{"id":"1"}]}`
	}
	exchange := func(w *e2e.Worker, from, to int) error {
		for i := from + w.Id; i < to; i += 16 {
			id := fmt.Sprintf("%s-%d", method, i)
			a, err := w.Exchange(method, "/fillbuffer?cb="+id, body)
			if err != nil {
				return err
			}
			all.Add(a)
			if a.Status == 502 && a.Header("X-Adbuffer-Source") == "proxy/conn_lost" {
				continue // it counts as lost
			}
			if want := `{"id":"` + id + `","method":"` + method + `"}`; a.Body != want || a.Header("X-Echo") != id {
				return fmt.Errorf("request %s got the response %s with %v", id, a.Body, a.Fields)
			}
		}
		return nil
	}
	const parts = 2
	for part := range parts {
		ab.Concurrently(16, func(w *e2e.Worker) error {
			return exchange(w, part*nginxRequests/parts, (part+1)*nginxRequests/parts)
		})
		// adbuffer may open another connection when nginx closes the last one.
		sofar := ab.Scrape().Sum(opened)
		testsupport.Eventually(t, "adbuffer has seen as many closes as it had connections", func() bool {
			return ab.Scrape().Sum("adbuffer_pool_connections_closed_total") >= sofar
		})
	}
	t.Logf("%s: %v", method, &all)
	m := ab.Scrape()
	t.Logf("%s in %v: %v connections opened, retries %v, stale %v", method, time.Since(began).Round(time.Millisecond),
		m.Sum(opened), m.All("adbuffer_retries_total"), m.Value("adbuffer_pool_stale_connections_total"))
	return nginxRequests - all.Of("ssp/openx 200"), int(m.Sum(opened) - before)
}

// nginx answers some requests by closing the connection, each about 140 ms after another request on it. Twelve
// of them taught the pool an idle limit of 0.07 s, for all.
func TestRequestsThatNginxAnswersWithACloseTeachNoIdleLimit(t *testing.T) {
	t.Parallel()
	addr := testsupport.FreeAddr(t)
	testsupport.StartNginx(t, t.TempDir(), addr, fmt.Sprintf(`
	access_log off;
	server {
		listen %s;
		location / {
			if ($arg_close) { return 444; }
			return 200 '{}';
		}
	}`, addr))
	ab := e2e.Start(t, e2e.Single("http://"+addr+"/bid", "pool: {auto: {enabled: true}}", "breaker: {enabled: false}"))
	c := ab.Dial()
	for range 12 {
		c.Get("/fillbuffer").WantStatus("an ordinary request", 200)
		time.Sleep(140 * time.Millisecond)
		c.Get("/fillbuffer?close=1").WantStatus("a request that nginx answers with a close", 502)
	}
	testsupport.Equal(t, ab.Metric("adbuffer_pool_learned_idle_seconds", "ssp=openx"), 0, "the pool has learned an idle limit of %v s")
}
