package proxy

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
)

const msec = time.Millisecond

// deadlineDefaults are the defaults of config/reference.yaml.
var deadlineDefaults = DeadlineOptions{
	Default: 300 * msec, Max: 5 * time.Second, Header: "X-Adbuffer-Timeout-Ms", OpenRTBTmax: true, Reserve: 5 * msec, MinBudget: 5 * msec,
}

// budgetOf returns how much time a request with the given fields and body has, from the moment when
// it was read completely.
func budgetOf(t *testing.T, o DeadlineOptions, head, body string) (time.Duration, *refusal, *request) {
	t.Helper()
	r := &request{configVersion: &configVersion{opts: Options{Deadline: o}}, started: time.Now(), body: []byte(body)}
	r.opts.MaxBodyBytes = 4096
	r.fields.TimeoutName = o.Header
	testsupport.NoError(t, r.fields.Scan([]byte("Host: a\r\n"+head+"\r\n")))
	f := r.setDeadline()
	return r.ssp.Deadline.Sub(r.started), f, r
}

func TestTheDeadlineIsTheSmallestThatIsStatedLessTheReserve(t *testing.T) {
	header := func(ms string) string { return "x-adbuffer-timeout-ms: " + ms + "\r\n" }
	for _, c := range []struct {
		name, head, body string
		with             func(o *DeadlineOptions)
		want             time.Duration
	}{
		{"nothing is stated", "", "", nil, 295 * msec},
		{"the header", header("100"), "", nil, 95 * msec},
		{"the header, above the default", header("2000"), "", nil, 1995 * msec},
		{"the header, above max", header("600000"), "", nil, 4995 * msec},
		{"tmax", "", `{"tmax":100}`, nil, 95 * msec},
		{"tmax, above the default", "", `{"tmax":1000}`, nil, 995 * msec},
		{"tmax, above max", "", `{"tmax":600000}`, nil, 4995 * msec},
		{"both, the header is smaller", header("100"), `{"tmax":200}`, nil, 95 * msec},
		{"both, tmax is smaller", header("200"), `{"tmax":100}`, nil, 95 * msec},
		{"a bad tmax beside a header", header("100"), `{"tmax":"1"}`, nil, 95 * msec},
		{"tmax with a fraction", "", `{"tmax":100.9}`, nil, 95 * msec},
		{"tmax of a body in gzip, by another name", "Content-Encoding: X-GZIP\r\n", testsupport.Gzip(`{"id":"1","tmax":1e2}`), nil, 95 * msec},
		{"tmax of a body in gzip, openrtb_tmax is off", "Content-Encoding: gzip\r\n", testsupport.Gzip(`{"tmax":100}`), func(o *DeadlineOptions) { o.OpenRTBTmax, o.RewriteTmax = false, true }, 295 * msec},
		{"tmax of a body in zstd beyond max_body_bytes", "Content-Encoding: zstd\r\n", testsupport.Zstd(`{"id":"` + strings.Repeat("x", 5000) + `","tmax":100}`), nil, 295 * msec},
		{"tmax of a body with an identity coding", "content-encoding: identity\r\n", `{"tmax":100}`, nil, 295 * msec},
		{"no header sets it", header("100"), "", func(o *DeadlineOptions) { o.Header = "" }, 295 * msec},
		{"another header sets it", "X-Tmax: 70\r\n" + header("100"), "", func(o *DeadlineOptions) { o.Header = "X-Tmax" }, 65 * msec},
		{"no reserve", header("100"), "", func(o *DeadlineOptions) { o.Reserve = 0 }, 100 * msec},
		{"leading zeros", header("000100"), "", nil, 95 * msec},
		{"exactly min_budget", header("10"), "", nil, 5 * msec},
		{"grpc-timeout", grpcTimeout("100m"), "", nil, 95 * msec},
		{"grpc-timeout in hours", grpcTimeout("99999999H"), "", nil, 4995 * msec},
		{"grpc-timeout in minutes", grpcTimeout("1M"), "", nil, 4995 * msec},
		{"grpc-timeout in seconds", grpcTimeout("2S"), "", nil, 1995 * msec},
		{"grpc-timeout in microseconds", grpcTimeout("99999u"), "", nil, 94999 * time.Microsecond},
		{"grpc-timeout in nanoseconds", grpcTimeout("20000000n"), "", nil, 15 * msec},
		{"grpc-timeout, the header is smaller", header("100") + grpcTimeout("200m"), "", nil, 95 * msec},
		{"grpc-timeout, smaller than the header", header("200") + grpcTimeout("100m"), "", nil, 95 * msec},
		{"grpc-timeout, no header sets the deadline", grpcTimeout("100m"), "", func(o *DeadlineOptions) { o.Header = "" }, 95 * msec},
		{"grpc-timeout of another type of gRPC", "grpc-timeout: 100m\r\nContent-Type: Application/gRPC+proto;x=y\r\n", "", nil, 95 * msec},
		{"grpc-timeout without gRPC", "grpc-timeout: 100m\r\nContent-Type: application/json\r\n", "", nil, 295 * msec},
		{"grpc-timeout without a type", "grpc-timeout: junk\r\n", "", nil, 295 * msec},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := deadlineDefaults
			if c.with != nil {
				c.with(&o)
			}
			got, f, _ := budgetOf(t, o, c.head, c.body)
			testsupport.True(t, f == nil && got == c.want, "%v, %+v; want %v", got, f, c.want)
		})
	}
}

func TestABadTimeoutHeaderIs400(t *testing.T) {
	for name, head := range map[string]string{
		"empty": "X-Adbuffer-Timeout-Ms:\r\n", "blank": "X-Adbuffer-Timeout-Ms:  \r\n", "zero": "X-Adbuffer-Timeout-Ms: 0\r\n",
		"too long": "X-Adbuffer-Timeout-Ms: 600001\r\n", "much too long": "X-Adbuffer-Timeout-Ms: " + strings.Repeat("9", 40) + "\r\n",
		"negative": "X-Adbuffer-Timeout-Ms: -1\r\n", "fraction": "X-Adbuffer-Timeout-Ms: 1.5\r\n", "unit": "X-Adbuffer-Timeout-Ms: 100ms\r\n",
		"list": "X-Adbuffer-Timeout-Ms: 100, 200\r\n", "twice": "X-Adbuffer-Timeout-Ms: 100\r\nX-Adbuffer-Timeout-Ms: 100\r\n",
		"other digits": "X-Adbuffer-Timeout-Ms: ١\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, f, _ := budgetOf(t, deadlineDefaults, head, `{"tmax":100}`)
			if f == nil || f.Outcome != exchange.BadRequest || !strings.Contains(f.Detail, "X-Adbuffer-Timeout-Ms") || !strings.Contains(f.Detail, "600000") {
				t.Errorf("%+v, want bad_request that names the field and its range", f)
			}
		})
	}
}

// grpcTimeout returns the fields of a gRPC call with this timeout.
func grpcTimeout(value string) string {
	return "Content-Type: application/grpc\r\nGrpc-Timeout: " + value + "\r\n"
}

func TestABadGRPCTimeoutIs400(t *testing.T) {
	for _, v := range []string{"", "m", "100", "100x", "-1m", "+1m", "1.5S", "1 m", "100ms", "123456789m", "1h", "１m", "1m,2m"} {
		_, f, _ := budgetOf(t, deadlineDefaults, grpcTimeout(v), "")
		testsupport.True(t, f != nil && f.Outcome == exchange.BadRequest && strings.HasPrefix(f.Detail, "grpc-timeout must be"), "%q: %+v, want bad_request", v, f)
	}
	_, f, _ := budgetOf(t, deadlineDefaults, grpcTimeout("100m")+"grpc-timeout: 100m\r\n", "")
	testsupport.True(t, f != nil && f.Outcome == exchange.BadRequest, "two fields: %+v, want bad_request", f)
	_, f, _ = budgetOf(t, deadlineDefaults, grpcTimeout("0n"), "")
	testsupport.True(t, f != nil && f.Outcome == exchange.Deadline && strings.HasPrefix(f.Detail, "grpc-timeout leaves only 0s"), "no time left: %+v, want deadline", f)
}

func TestTooShortADeadlineIsRefusedAtOnce(t *testing.T) {
	for _, ms := range []int{1, 4, 5, 9} {
		_, f, _ := budgetOf(t, deadlineDefaults, "X-Adbuffer-Timeout-Ms: "+strconv.Itoa(ms)+"\r\n", "")
		testsupport.True(t, f != nil && f.Outcome == exchange.Deadline && strings.HasPrefix(f.Detail, "X-Adbuffer-Timeout-Ms leaves only ") && strings.Contains(f.Detail, "less than 5ms") && strings.Contains(f.Detail, "deadline.min_budget"), "%d ms: %+v, want deadline that names its source, and deadline.min_budget with its value", ms, f)
		if _, f, _ = budgetOf(t, deadlineDefaults, "", `{"tmax":`+strconv.Itoa(ms)+`}`); f == nil || f.Outcome != exchange.Deadline {
			t.Errorf("tmax %d: %+v, want deadline", ms, f)
		}
	}
}

func TestThePositionOfTmaxIsFoundThoughItIsNoDeadline(t *testing.T) {
	o := deadlineDefaults
	o.OpenRTBTmax, o.RewriteTmax = false, true
	_, _, r := budgetOf(t, o, "", `{"tmax":100}`)
	testsupport.Equal(t, string(r.body[r.ssp.TmaxStart:r.ssp.TmaxEnd]), "100", "tmax is at %q")
}

func TestTheSourceOfTheDeadlineAndWhyItIsNotTmax(t *testing.T) {
	const gzipped = "Content-Encoding: gzip\r\n"
	long := strings.Repeat("x", 300<<10)
	for _, c := range []struct {
		name, head, body string
		with             func(o *DeadlineOptions)
		from, ignored    string
	}{
		{"it counts", "", `{"tmax":100}`, nil, "tmax", ""},
		{"it counts, in gzip", gzipped, testsupport.Gzip(`{"tmax":100}`), nil, "tmax", ""},
		{"it counts, in gzip that is cut behind it", gzipped, testsupport.Gzip(`{"tmax":100,"id":"1"}`)[:40], nil, "tmax", ""},
		{"it is as long as the header", "X-Adbuffer-Timeout-Ms: 100\r\n", `{"tmax":100}`, nil, "tmax", ""},
		{"no body", "", "", nil, "deadline.default", ""},
		{"no member", "", `{"id":"1"}`, nil, "deadline.default", "absent"},
		{"a nested member", "", `{"ext":{"tmax":100}}`, nil, "deadline.default", "absent"},
		{"openrtb_tmax is off", "", `{"tmax":100}`, func(o *DeadlineOptions) { o.OpenRTBTmax = false }, "deadline.default", "off"},
		{"openrtb_tmax is off, rewrite_tmax is on", "", `{"tmax":100}`, func(o *DeadlineOptions) { o.OpenRTBTmax, o.RewriteTmax = false, true }, "deadline.default", "off"},
		{"the header is shorter", "X-Adbuffer-Timeout-Ms: 50\r\n", `{"tmax":100}`, nil, "X-Adbuffer-Timeout-Ms", "longer"},
		{"the longest deadline is shorter", "", `{"tmax":6000}`, nil, "deadline.max", "longer"},
		{"brotli", "Content-Encoding: br\r\n", `{"tmax":100}`, nil, "deadline.default", "encoding"},
		{"gzip twice", "Content-Encoding: gzip\r\n" + gzipped, testsupport.Gzip(testsupport.Gzip(`{"tmax":100}`)), nil, "deadline.default", "encoding"},
		{"no gzip", gzipped, `{"tmax":100}`, nil, "deadline.default", "undecodable"},
		{"gzip that is cut before it", gzipped, testsupport.Gzip(`{"id":"` + strings.Repeat("id", 99) + `","tmax":100}`)[:24], nil, "deadline.default", "undecodable"},
		{"it counts, in zstd", "Content-Encoding: zstd\r\n", testsupport.Zstd(`{"tmax":100}`), nil, "tmax", ""},
		{"no zstd", "Content-Encoding: zstd\r\n", testsupport.Gzip(`{"tmax":100}`), nil, "deadline.default", "undecodable"},
		{"zstd after gzip", gzipped + "Content-Encoding: zstd\r\n", testsupport.Zstd(testsupport.Gzip(`{"tmax":100}`)), nil, "deadline.default", "encoding"},
		{"gzip of no JSON", gzipped, testsupport.Gzip(`"tmax"=100`), nil, "deadline.default", "syntax"},
		{"protobuf", "Content-Type: application/x-protobuf\r\n", "\x0a\x01a", nil, "deadline.default", "media_type"},
		{"beyond 256 KiB", "", `{"id":"` + long + `","tmax":100}`, nil, "deadline.default", "beyond"},
		{"beyond max_body_bytes of a gzip body", gzipped, testsupport.Gzip(`{"id":"` + strings.Repeat("x", 5000) + `","tmax":100}`), nil, "deadline.default", "beyond"},
		{"no JSON", "", `{"id":1,,"tmax":100}`, nil, "deadline.default", "syntax"},
		{"an array", "", `[{"tmax":100}]`, nil, "deadline.default", "syntax"},
		{"a string", "", `{"tmax":"100"}`, nil, "deadline.default", "value"},
		{"zero", "", `{"tmax":0}`, nil, "deadline.default", "value"},
		{"too large", "", `{"tmax":600001}`, nil, "deadline.default", "value"},
	} {
		o := deadlineDefaults
		if c.with != nil {
			c.with(&o)
		}
		_, f, r := budgetOf(t, o, c.head, c.body)
		if got := r.ignoredTmax; f != nil || r.ssp.DeadlineFrom != c.from || got.String() != c.ignored || (got.text() == "") != (c.ignored == "") {
			t.Errorf("%s: from %s, tmax ignored: %q (%s), %+v; want %s, %q", c.name, r.ssp.DeadlineFrom, got, got.text(), f, c.from, c.ignored)
		}
	}
}

// A body in gzip that needs turns and gets none until its deadline is refused for adbuffer's lack of CPU.
func TestARequestWhoseBodyGetsNoTurnIsRefused(t *testing.T) {
	share := cpushare.New(0.25, time.Hour)
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		turn, err := share.Acquire(cpushare.Decode, 1, time.Now())
		testsupport.NoError(t, err)
		defer turn.Release()
	}
	for body, refused := range map[string]bool{`{"tmax":100}`: false, testsupport.Gzip(`{"tmax":100}`): false, string(testsupport.GzipOfTables(8192)): true} {
		r := &request{configVersion: &configVersion{opts: Options{Deadline: deadlineDefaults}}, started: time.Now(), body: []byte(body)}
		r.opts.MaxBodyBytes, r.ssp.CPU, r.ssp.Budget = 1<<20, share, exchange.NewBudget(1<<20)
		testsupport.NoError(t, r.fields.Scan([]byte("Host: a\r\nGrpc-Timeout: 20m\r\n"+map[bool]string{true: "Content-Encoding: gzip\r\n"}[body[0] == 0x1f]+"\r\n")))
		f := r.setDeadline()
		if !refused {
			testsupport.True(t, f == nil, "%d bytes: %+v, want no refusal", len(body), f)
			continue
		}
		testsupport.True(t, f != nil && f.Outcome == exchange.Overloaded && strings.Contains(f.Detail, "server.background_cpu"), "%d bytes: %+v, want overloaded by server.background_cpu", len(body), f)
		testsupport.True(t, time.Since(r.started) >= 10*msec, "it waited for %v, want 10 ms: 20 ms less deadline.reserve and deadline.min_budget", time.Since(r.started))
		testsupport.Equal(t, r.ssp.Budget.Used(), 0, "%d bytes of the budget are held")
		r.ssp.Budget = exchange.NewBudget(100)
		f = r.setDeadline()
		testsupport.True(t, f != nil && f.Outcome == exchange.Overloaded && strings.Contains(f.Detail, "server.max_buffered_bytes"), "without memory: %+v, want overloaded by server.max_buffered_bytes", f)
	}
}
