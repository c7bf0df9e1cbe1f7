package ssp

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/tcf"
)

// gunzip uses the standard library, not the library that compressed the body.
func gunzip(t *testing.T, s string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(s))
	testsupport.NoError(t, err)
	b, err := io.ReadAll(z)
	testsupport.NoError(t, err)
	return string(b)
}

// decoded uses other decoders than the product.
func decoded(t *testing.T, c Coding, s string) string {
	t.Helper()
	if c == CodingZstd {
		return testsupport.ZstdProgram(t, s, "-d")
	}
	return gunzip(t, s)
}

// withTmax is a request whose body has the given tmax.
func (c *client) withTmax(tmax string) *Request {
	r := c.request(exchange.POST)
	before, behind := `{"id":"1","imp":[{"tmax":7}],"tmax": `, ` ,"at":1}`
	r.Body = []byte(before + tmax + behind)
	r.TmaxStart, r.TmaxEnd = len(before), len(before)+len(tmax)
	return r
}

func TestTmaxBecomesTheRemainingTimeAndNoOtherByteChanges(t *testing.T) {
	for _, c := range []struct {
		name, tmax, want string
		deadline, wait   time.Duration
		margin           time.Duration
	}{
		{"shorter", "300", "285", 295 * msec, 10 * msec, 0},
		{"with fewer digits", "100000", "95", 95 * msec, 0, 0},
		{"with more digits", "9", "599990", 599990 * msec, 0, 0},
		{"at least 1", "300", "1", 10 * msec, 10*msec - 1, 0},
		{"fractions are cut", "300", "9", 10 * msec, msec / 2, 0},
		{"less the margin", "300", "255", 295 * msec, 10 * msec, 30 * msec},
		{"less a margin of a fraction", "300", "284", 295 * msec, 10 * msec, msec / 2},
		{"at least 1, with a margin", "300", "1", 295 * msec, 10 * msec, 285 * msec},
	} {
		testsupport.RunBubble(t, c.name, func(t *testing.T) {
			p := &fakePool{acquire: func(int, *exchange.Exchange) error { time.Sleep(c.wait); return nil }}
			cl := newClient(t, p, func(o *Options) { o.RewriteTmax, o.TmaxMargin = true, c.margin })
			r := cl.withTmax(c.tmax)
			before := string(r.Body)
			r.Deadline = r.Received.Add(c.deadline)
			cl.do(r).want(exchange.Fill)
			want := before[:r.TmaxStart] + c.want + before[r.TmaxEnd:]
			got := p.requests()[0].body
			testsupport.True(t, got == want && json.Valid([]byte(got)), "sent\n%s\nwant\n%s", got, want)
			testsupport.True(t, string(r.Body) == before, "the client's body, which all legs share, became %s", r.Body)
			cl.wantIdle()
		})
	}
}

func TestBodyIsUnchangedWithoutAnythingToRewrite(t *testing.T) {
	for name, c := range map[string]struct {
		rewrite bool
		tmax    bool
	}{
		"rewrite_tmax is off": {false, true}, "no tmax": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &fakePool{}
			cl := newClient(t, p, func(o *Options) { o.RewriteTmax = c.rewrite })
			r := cl.withTmax("300")
			if !c.tmax {
				r.TmaxStart, r.TmaxEnd = 0, 0
			}
			p.steps = []step{func(ex *exchange.Exchange) error {
				testsupport.Equal(t, &ex.Request.Body[0], &r.Body[0], "the body was copied: %v")
				return fill()(ex)
			}}
			cl.do(r).want(exchange.Fill)
		})
	}
}

func TestWhichBodiesAreCompressed(t *testing.T) {
	long := strings.Repeat(`{"imp":[{"id":"1"}]}`, 60)
	noise := make([]byte, 2000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	for _, c := range []struct {
		name, body, head string
		o                CompressOptions
		want             bool
	}{
		{"long enough", long[:1024], "", CompressOptions{CodingGzip, 1024}, true},
		{"too short", long[:1023], "", CompressOptions{CodingGzip, 1024}, false},
		{"not set", long, "", CompressOptions{CodingNone, 0}, false},
		{"all, at 0", long[:200], "", CompressOptions{CodingGzip, 0}, true},
		{"no body", "", "", CompressOptions{CodingGzip, 0}, false},
		{"in identity", long, "Content-Encoding: identity\r\n", CompressOptions{CodingGzip, 0}, false},
		{"compressed already", long, "Content-Encoding: br\r\n", CompressOptions{CodingGzip, 0}, false},
		{"not shorter", string(noise), "", CompressOptions{CodingGzip, 0}, false},
		{"one byte", "x", "", CompressOptions{CodingGzip, 0}, false},
		{"long enough for zstd", long[:1024], "", CompressOptions{CodingZstd, 1024}, true},
		{"too short for zstd", long[:1023], "", CompressOptions{CodingZstd, 1024}, false},
		{"longer than a block of zstd", strings.Repeat(long, 200), "", CompressOptions{CodingZstd, 0}, true},
		{"not shorter in zstd", string(noise), "", CompressOptions{CodingZstd, 0}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &fakePool{}
			cl := newClient(t, p, func(o *Options) { o.Compress = c.o })
			cl.head("Host: ads.example\r\nContent-Type: application/json\r\n" + c.head + "\r\n")
			r := cl.request(exchange.POST)
			r.Body = []byte(c.body)
			cl.do(r).want(exchange.Fill)
			sent := p.requests()[0]
			line := fmt.Sprintf("Content-Encoding: %s\r\n", c.o.Coding)
			if got := strings.HasSuffix(sent.head, line); got != c.want || strings.Count(sent.head, "Content-Encoding") > 1 {
				t.Fatalf("sent %d of %d bytes with fields\n%s", len(sent.body), len(c.body), sent.head)
			}
			if c.want {
				testsupport.True(t, len(sent.body) < len(c.body), "%d bytes became %d", len(c.body), len(sent.body))
				sent.body = decoded(t, c.o.Coding, sent.body)
			}
			testsupport.Equal(t, sent.body, c.body, "sent %q")
			cl.wantIdle()
		})
	}
}

func TestBodyIsCompressedOncePerLeg(t *testing.T) {
	p := &fakePool{steps: []step{fail(notProcessed), fail(notSent), fill()}}
	c := newClient(t, p, func(o *Options) { o.Compress.Coding = CodingGzip })
	r := c.request(exchange.POST)
	r.Body = bytes.Repeat([]byte("body "), 1000)
	var first *byte
	for i := range p.steps {
		then := p.steps[i]
		p.steps[i] = func(ex *exchange.Exchange) error {
			if b := ex.Request.Body; first == nil {
				first = &b[0]
				r.Body[0] = 'B' // a second copy would contain this byte
			}
			return then(ex)
		}
	}
	c.do(r).want(exchange.Fill)
	sent := p.requests()
	for i := range sent {
		testsupport.True(t, sent[i].body == sent[0].body && sent[i].head == sent[0].head, "attempt %d differs from the first", i)
	}
	testsupport.True(t, len(sent) == 3 && strings.HasPrefix(gunzip(t, sent[2].body), "body body"), "%d were sent, the last %q", len(sent), gunzip(t, sent[2].body))
}

// The copy of a body counts in the budget.
func TestBodyCopyOverTheBudgetIsRefused(t *testing.T) {
	p := &fakePool{}
	c := newClient(t, p, func(o *Options) { o.RewriteTmax = true })
	c.budget = exchange.NewBudget(50)
	r := c.withTmax("300")
	c.do(r).want(exchange.Overloaded).wantDetail("50", "server.max_buffered_bytes")
	testsupport.True(t, p.returned == 1 && len(p.requests()) == 0, "%d sent, %d places released unused", len(p.requests()), p.returned)
	c.wantIdle()
}

func TestBodyCopyIsReservedAsLongAsTheLeg(t *testing.T) {
	p := &fakePool{}
	c := newClient(t, p, func(o *Options) { o.RewriteTmax = true })
	r := c.withTmax("300")
	p.steps = []step{func(ex *exchange.Exchange) error {
		got, want := c.budget.Used(), int64(len(r.Body))
		testsupport.True(t, got >= want && got <= want+10, "%d bytes are held for a copy of %d", got, want)
		return fail(notProcessed)(ex)
	}, fill()}
	c.do(r).want(exchange.Fill)
	c.wantIdle()
}

func TestLegsOfOneRequestDoNotShareABodyCopy(t *testing.T) {
	p := &fakePool{}
	c := newClient(t, p, func(o *Options) {
		o.RewriteTmax = true
		o.Compress = CompressOptions{Coding: CodingGzip}
		o.Breaker.Enabled = false
	})
	r := c.withTmax("300")
	r.Body = append(r.Body, strings.Repeat(" ", 500)...)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				ex := exchange.AcquireExchange()
				if o, err := c.ssp.Do(r, ex, 0); o == exchange.Internal {
					t.Error(err)
				}
				ex.Release()
			}
		})
	}
	wg.Wait()
	for _, s := range p.requests() {
		testsupport.MustTrue(t, json.Valid([]byte(gunzip(t, s.body))), "sent %q", s.body)
	}
	c.wantIdle()
}

// FuzzCompress checks that appended bytes can be decompressed and follow the bytes before them, or that
// nothing is appended.
func FuzzCompress(f *testing.F) {
	f.Add([]byte(strings.Repeat("ad ", 300)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, coding := range []Coding{CodingGzip, CodingZstd} {
			dst := []byte("head")
			out, ok := coding.Append(dst, body)
			testsupport.MustTrue(t, bytes.HasPrefix(out, dst), "%q is gone", dst)
			packed := out[len(dst):]
			if !ok {
				testsupport.MustEqual(t, len(packed), 0, "%d bytes were not read")
				continue
			}
			testsupport.MustTrue(t, len(packed) < len(body), "%d bytes became %d", len(body), len(packed))
			d := openrtb.AcquireDecoder()
			got, err := d.Decode([]byte(coding), packed, len(body))
			testsupport.MustTrue(t, err == nil && string(got) == string(body), "%q was decompressed as %q: %v", body, got, err)
			d.Release()
		}
	})
}

// Every attempt has the body that its SSP gets: without what remove names, with the time that remains then,
// and compressed. The body that all legs share stays, and each copy is reserved once and released.
func TestEachAttemptHasItsBody(t *testing.T) {
	edit := openrtb.NewEdit([]openrtb.Removal{{Path: openrtb.MustParsePath("device.ifa")}})
	const body, without = `{"device":{"ifa":"secret","ua":"x"},"tmax":%d,"x":"%s"}`, `{"device":{"ua":"x"},"tmax":%d,"x":"%s"}`
	x := strings.Repeat("x", 200)
	original := fmt.Sprintf(body, 300, x)
	for name, steps := range map[string]func(c *client) []step{
		"retried": func(*client) []step {
			return []step{after(100*msec, fail(notProcessed)), fail(notProcessed), fill()}
		},
		"resent, hedged":  func(*client) []step { return []step{fail(stale), never(), fill()} },
		"hedged, retried": func(*client) []step { return []step{after(20*msec, fail(stale)), fail(cutMidResponse), fill()} },
		"not hedged, then hedged": func(c *client) []step {
			late := c.ssp.lateAfter.value.Swap(0)
			return []step{func(ex *exchange.Exchange) error {
				c.ssp.lateAfter.value.Store(late)
				return fail(stale)(ex)
			}, never(), fill()}
		},
	} {
		for settings := range 8 {
			remove, rewrite, compress := settings&1 > 0, settings&2 > 0, settings&4 > 0
			testsupport.Bubble(t, func(t *testing.T) {
				p := &fakePool{}
				c := learnt(t, p, func(o *Options) {
					o.RewriteTmax = rewrite
					if compress {
						o.Compress = CompressOptions{Coding: CodingGzip}
					}
					if remove {
						o.Edit = edit
					}
				})
				least, most, want := int64(len(original)), int64(4*(len(original)+maxTmaxDigits)), body
				if settings == 0 {
					least, most = 0, 0
				}
				if remove {
					want = without
				}
				for _, then := range steps(c) {
					p.steps = append(p.steps, func(ex *exchange.Exchange) error {
						testsupport.Between(t, c.budget.Used(), least, most, "%[2]s: %[1]d bytes are held for copies", name)
						return then(ex)
					})
				}
				r := c.request(exchange.GET)
				if name == "retried" {
					r.Method = exchange.POST // it is not hedged
				}
				r.Body = []byte(original)
				r.TmaxStart = strings.Index(original, "300")
				r.TmaxEnd = r.TmaxStart + 3
				c.do(r).want(exchange.Fill)
				testsupport.Equal(t, string(r.Body), original, "%[2]s: the body that all legs share became %[1]s", name)
				for i, s := range p.requests() {
					got, tmax := s.body, 300
					if compress {
						got = gunzip(t, got)
					}
					if rewrite {
						tmax = int(r.Deadline.Sub(s.at).Milliseconds())
					}
					testsupport.Equal(t, got, fmt.Sprintf(want, tmax, x), "%[2]s, settings %03[3]b: attempt %[4]d sent %[1]s", name, settings, i)
				}
				c.wantSent(p, 3)
				c.wantIdle()
			})
		}
	}
}

// remove changes nothing about which bodies are compressed: none is that has a Content-Encoding, also identity.
func TestABodyInIdentityIsNotCompressedBesideRemove(t *testing.T) {
	p := &fakePool{steps: []step{fill()}}
	c := newClient(t, p, func(o *Options) {
		o.Edit = openrtb.NewEdit([]openrtb.Removal{{Path: openrtb.MustParsePath("a")}})
		o.Compress = CompressOptions{Coding: CodingGzip}
	})
	c.head("Host: ads.example\r\nContent-Encoding: identity\r\n\r\n")
	r := c.request(exchange.POST)
	rest := `"b":"` + strings.Repeat("b", 500) + `"}`
	r.Body = []byte(`{"a":1,` + rest)
	c.do(r).want(exchange.Fill)
	sent := p.requests()[0]
	testsupport.True(t, sent.body == "{"+rest && strings.Count(sent.head, "Content-Encoding") == 1, "sent %q with fields\n%s", sent.body, sent.head)
}

// A body gets what set says before rewrite_tmax and compression, and does not become longer than max_body_bytes.
func TestBodyWithSets(t *testing.T) {
	path := openrtb.MustParsePath
	node := openrtb.Set{Path: path("source.nodes"), How: openrtb.Append, Value: []byte(`{"sid":"1"}`)}
	tmax := openrtb.Set{Path: path("tmax"), How: openrtb.Default, Value: []byte("7")}
	set := openrtb.NewEdit([]openrtb.Removal{{Path: path("device")}}, node, tmax)
	for _, tt := range []struct {
		body    string
		change  func(o *Options)
		want    string // "" = refused
		outcome exchange.Outcome
		detail  string
	}{
		{`{"device":{},"id":"1"}`, nil, `{"id":"1","source":{"nodes":[{"sid":"1"}]},"tmax":7}`, exchange.Fill, ""},
		{`{"id":"1"}`, func(o *Options) { o.RewriteTmax = true }, `{"id":"1","source":{"nodes":[{"sid":"1"}]},"tmax":300}`, exchange.Fill, ""},
		{`{"tmax":"1s"}`, func(o *Options) { o.RewriteTmax = true }, `{"tmax":"1s","source":{"nodes":[{"sid":"1"}]}}`, exchange.Fill, ""},
		{`{"tmax":-1}`, func(o *Options) { o.RewriteTmax = true }, `{"tmax":300,"source":{"nodes":[{"sid":"1"}]}}`, exchange.Fill, ""},
		{`{"source":{"nodes":[]}}`, func(o *Options) { o.Compress.Coding = CodingGzip }, `{"source":{"nodes":[{"sid":"1"}]},"tmax":7}`, exchange.Fill, ""},
		{``, nil, ``, exchange.Fill, ""},
		{`{"source":{"nodes":{}}}`, nil, "", exchange.Filtered, "ssps[].set cannot change the body: a member on the path of a set is not an object, or the member to append to is not an array"},
		{`{"source":{},"source":{}}`, nil, "", exchange.Filtered, "ssps[].remove and set cannot read the body: it has the same member twice, on a configured path"},
		{`{}`, func(o *Options) { o.MaxBodyBytes = 42 }, "", exchange.TooLarge, "ssps[].set makes the body 43 bytes long, over 42; see server.max_body_bytes"},
		{`{}`, func(o *Options) { o.MaxBodyBytes = 43 }, `{"source":{"nodes":[{"sid":"1"}]},"tmax":7}`, exchange.Fill, ""},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			p := &fakePool{}
			c := newClient(t, p, func(o *Options) {
				o.Edit, o.MaxBodyBytes = set, 1000
				if tt.change != nil {
					tt.change(o)
				}
			})
			p.steps = []step{func(ex *exchange.Exchange) error {
				testsupport.True(t, c.budget.Used() >= int64(len(ex.Request.Body)) || tt.body == "", "%d bytes are held for a copy of %d", c.budget.Used(), len(ex.Request.Body))
				return fill()(ex)
			}}
			r := c.request(exchange.POST)
			r.Body, r.Deadline = []byte(tt.body), r.Received.Add(300*msec)
			res := c.do(r).want(tt.outcome)
			if tt.outcome != exchange.Fill {
				res.wantDetail(tt.detail)
			} else {
				got := p.requests()[0]
				if strings.Contains(got.head, "gzip") {
					got.body = gunzip(t, got.body)
				}
				testsupport.Equal(t, got.body, tt.want, "sent %s")
			}
			testsupport.Equal(t, string(r.Body), tt.body, "the body that all legs share became %s")
			c.wantIdle()
		})
	}
}

// Conditions of edits use the consent that was decoded for the request.
func TestEditsUseTheConsentOfTheRequest(t *testing.T) {
	p := &fakePool{steps: []step{fill(), fill()}}
	c := newClient(t, p, func(o *Options) {
		o.Edit = openrtb.NewEdit([]openrtb.Removal{{Path: openrtb.Path{"a"}, When: []openrtb.Condition{{TCF: &tcf.Requirement{Vendor: 76}}}}})
	})
	r := c.request(exchange.POST)
	r.Body = []byte(`{"a":1,"b":2}`)
	c.do(r).want(exchange.Fill)
	r.Consent = tcf.New(true, nil)
	c.do(r).want(exchange.Fill)
	sent := p.requests()
	testsupport.True(t, sent[0].body == `{"b":2}` && sent[1].body == `{"a":1,"b":2}`, "the SSP got %q and %q", sent[0].body, sent[1].body)
}
