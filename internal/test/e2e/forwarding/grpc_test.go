package forwarding

import (
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// grpcMessage returns a message in gRPC's framing.
func grpcMessage(text string) string {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))
	return string(append(b, text...))
}

func unencryptedHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// A unary gRPC call is forwarded: te: trailers to the SSP, grpc-status in the trailer or in the
// header of a response without a body. Fields that are forbidden in a trailer are dropped.
func TestUnaryCallsOfGRPCCross(t *testing.T) {
	t.Parallel()
	ssp := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("X-Saw", strings.Join(append([]string{r.Proto, r.Method, r.URL.Path, r.Header.Get("Grpc-Timeout")}, r.Header["Te"]...), " "))
		if strings.Contains(string(body), "fail") {
			w.Header().Set("Grpc-Status", "5")
			return
		}
		io.WriteString(w, grpcMessage("echo "+string(body[5:])))
		for _, f := range []string{"Grpc-Status: 0", "Grpc-Message: fine", "Set-Cookie: a=b", "X-Adbuffer-Source: forged", "Content-Type: text/html"} {
			name, value, _ := strings.Cut(f, ": ")
			w.Header().Set(http.TrailerPrefix+name, value)
		}
	}))
	ssp.Config.Protocols = unencryptedHTTP2()
	ssp.Start()
	defer ssp.Close()
	ab := e2e.Start(t, "server: {h2c: true}\n"+e2e.Single(ssp.URL+"/ads.Bidder/Bid", "protocol: h2c"))
	transport := &http.Transport{Protocols: unencryptedHTTP2(), IdleConnTimeout: 100 * time.Millisecond} // CloseIdleConnections misses a stream that is just ending
	defer transport.CloseIdleConnections()
	call := func(message string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+ab.TrafficAddr+"/fillbuffer", strings.NewReader(grpcMessage(message)))
		testsupport.NoError(t, err)
		req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Grpc-Timeout": {"15S"}}
		res, err := transport.RoundTrip(req)
		testsupport.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Error(err)
		}
		saw := res.Header.Get("X-Saw") // with the time that is left, in milliseconds
		testsupport.True(t, regexp.MustCompile(`^HTTP/2\.0 POST /ads\.Bidder/Bid 1[0-4]\d{3}m trailers$`).MatchString(saw), "the SSP got %q", saw)
		return res, string(body)
	}
	res, body := call("hello")
	if body != grpcMessage("echo hello") || res.ProtoMajor != 2 || res.Header.Get("Content-Length") != "" {
		t.Errorf("%q over %s, %v", body, res.Proto, res.Header)
	}
	testsupport.True(t, len(res.Trailer) == 2 && res.Trailer.Get("Grpc-Status") == "0" && res.Trailer.Get("Grpc-Message") == "fine", "trailer %v", res.Trailer)
	testsupport.Equal(t, res.Header.Get("X-Adbuffer-Source"), "ssp/openx", "source %q")
	res, body = call("fail")
	testsupport.True(t, body == "" && res.Header.Get("Grpc-Status") == "5", "a call that fails: %q %v", body, res.Header)
}
