package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// A browser sends bodies of 0 bytes to 1 MiB at once over HTTP/2, and gets each one back. Then it
// cancels twenty requests that the SSP is handling. The SSP sees each one cancelled, and the
// connection continues.
func TestABrowserSendsLargeBodiesAndCancelsOverHTTP2(t *testing.T) {
	t.Parallel()
	var asked, cancelled atomic.Int32
	ssp := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.RawQuery {
		case "wait":
			asked.Add(1)
			<-r.Context().Done()
			cancelled.Add(1)
		case "asked":
			fmt.Fprint(w, asked.Load())
		default:
			body, _ := io.ReadAll(r.Body)
			w.Write(append([]byte("echo"), body...))
		}
	}))
	ssp.Config.Protocols = new(http.Protocols)
	ssp.Config.Protocols.SetUnencryptedHTTP2(true)
	ssp.Start()
	t.Cleanup(ssp.Close)
	e := e2e.NewAuthority(t)
	ab := e2e.Start(t, e.ServerSection(", max_body_bytes: 2097152, max_in_flight: 4000, max_buffered_bytes: 1073741824")+
		e2e.Single(ssp.URL+"/", "protocol: h2c\n    max_response_bytes: 4194304\n    max_buffered_bytes: 1073741824"),
		"ADBUFFER_DEADLINE_DEFAULT=10m", "ADBUFFER_DEADLINE_MAX=10m")
	const script = `(async () => {
  const path = "/fillbuffer";
  const echo = async size => {
    const body = String.fromCharCode(97 + size % 26).repeat(size);
    const got = await (await fetch(path, {method: "POST", body})).text();
    return got === "echo" + body ? "" : size + " bytes: got " + got.length;
  };
  const sizes = [0, 1, 1000, 16384, 65535, 65536, 300000, 1048576];
  const wrong = (await Promise.all([...sizes, ...sizes].map(echo))).join("");
  const all = new AbortController();
  const waiting = [...Array(20).keys()].map(() => fetch(path + "?wait", {signal: all.signal, cache: "no-store"}).then(r => r.status, e => e.name));
  while (await (await fetch(path + "?asked", {cache: "no-store"})).text() !== "20") await new Promise(r => setTimeout(r, 10));
  all.abort();
  const ends = new Set(await Promise.all(waiting));
  const protocols = new Set(performance.getEntries().filter(e => e.nextHopProtocol).map(e => e.nextHopProtocol));
  return [wrong, await echo(5), ...ends, ...protocols].join(";");
})()`
	ctx := startChromium(t, chromedp.IgnoreCertErrors)
	var got string
	err := chromedp.Run(ctx, chromedp.Navigate("https://"+ab.TrafficAddr+"/fillbuffer"), chromedp.Evaluate(script, &got, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
		return p.WithAwaitPromise(true)
	}))
	testsupport.NoError(t, err)
	testsupport.True(t, got == ";;AbortError;h2", "the page shows %q", got)
	testsupport.Eventually(t, "the SSP sees 20 cancelled requests", func() bool { return cancelled.Load() == 20 })
	ab.AwaitMetric(20, "adbuffer_requests_total", "route=default", "outcome=client_gone")
	ab.WantMetric(0, "adbuffer_client_protocol_errors_total", "protocol=http2")
}
