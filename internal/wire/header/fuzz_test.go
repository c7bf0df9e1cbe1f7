package header

import (
	"bufio"
	"bytes"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/syntax"
)

var fuzzPolicies = []*Policy{
	NewPolicy(PolicyOptions{}),
	NewPolicy(PolicyOptions{Identity: Both, Pass: []string{"Cookie", "Authorization", "Proxy-Authorization"}}),
	NewPolicy(PolicyOptions{Identity: XDevice, Remove: []string{"X-Internal"}, Set: []NameValue{{"Accept-Encoding", "identity"}}}),
	NewPolicy(PolicyOptions{Identity: None}),
}

// hopByHop are the fields that no block may hold, by canonical name.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect",
	"Content-Length", "Host", "Http2-Settings"}

// FuzzScan checks that a block that Scan accepts has the same meaning for all parsers, and that
// only allowed fields are forwarded.
func FuzzScan(f *testing.F) {
	f.Add(adHead, false)
	f.Add(head(allIdentity...), false)
	f.Add(head("X-A:1", "X-B: \t2 ", "Connection: X-A, close", "Cookie: a=b", "X_Forwarded_For: 192.0.2.1"), false)
	f.Add(head("Content-Length: 3", "X-Internal: 1", "accept-encoding: gzip"), true)
	f.Add(head("Transfer-Encoding: chunked"), false)
	f.Add(head("Transfer-Encoding: chunked", "Content-Length: 3"), false)
	f.Add(head("Foo Bar: 1"), false)
	f.Add(head("X-A: 1\r\n 2"), false)
	f.Add("Host: a\n\r\n", false)
	f.Add("\r\n", true)
	f.Add("", true)
	f.Fuzz(func(t *testing.T, raw string, truncate bool) {
		fields := RequestFields{HTTP10: true}
		if fields.Scan([]byte(raw)) != nil {
			return
		}
		if raw == "" {
			raw = "\r\n"
		}
		rebuilt := sameToEveryone(t, &fields, raw)

		again := RequestFields{HTTP10: true}
		err := again.Scan([]byte(rebuilt))
		testsupport.MustTrue(t, err == nil, "rebuilt as %q: %v", rebuilt, err)
		same := cmp.Comparer(func(a, b Field) bool {
			return bytes.Equal(a.Name, b.Name) && bytes.Equal(a.Value, b.Value) && a.id == b.id && a.withheld == b.withheld
		})
		testsupport.MustEqual(t, cmp.Diff(fields.fields, again.fields, same), "", "rebuilt as %[2]q (-before +after):\n%[1]s", rebuilt)

		var id Identity
		for _, trusted := range []bool{false, true} {
			id.Resolve(&fields, netip.MustParseAddr("10.0.0.1"), trusted, private, truncate)
			for i, p := range fuzzPolicies {
				checkBlock(t, p.AppendRequest(nil, &fields, &id), fields.options.names[:fields.options.n], i > 0)
			}
			// Under a policy without special rules, copied lines equal appended lines.
			one := linesOf(t, fuzzPolicies[0].AppendRequest(nil, &fields, &id))
			id.Resolve(&again, netip.MustParseAddr("10.0.0.1"), trusted, private, truncate)
			two := linesOf(t, fuzzPolicies[0].AppendRequest(nil, &again, &id))
			testsupport.MustEqual(t, cmp.Diff(one, two), "", "copied and rebuilt lines differ:\n%s")
		}
	})
}

// sameToEveryone checks that fasthttp and net/http read the same framing and host from the block,
// if they also accept it. It returns the block with every line in the form "Name: value".
func sameToEveryone(t *testing.T, f *RequestFields, raw string) (rebuilt string) {
	for i := range f.Fields() {
		field := &f.Fields()[i]
		if !syntax.IsToken(field.Name) || bytes.ContainsAny(field.Value, "\r\n\x00") || !bytes.Equal(syntax.Trim(field.Value), field.Value) {
			t.Fatalf("accepted field %q: %q", field.Name, field.Value)
		}
		rebuilt += string(field.Name) + ": " + string(field.Value) + "\r\n"
	}

	host, _ := f.Lookup("Host")
	request := "POST / HTTP/1.1\r\n" + raw
	if r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(request))); err == nil {
		chunked := slices.Equal(r.TransferEncoding, []string{"chunked"})
		length := max(f.ContentLength(), 0)
		if f.Chunked() {
			length = -1
		}
		if chunked != f.Chunked() || r.ContentLength != length || r.Host != string(host) {
			t.Fatalf("net/http reads Host %q, Content-Length %d, chunked %v; adbuffer reads %q, %d, %v",
				r.Host, r.ContentLength, chunked, host, length, f.Chunked())
		}
	}
	var h fasthttp.RequestHeader
	if err := h.Read(bufio.NewReader(strings.NewReader(request))); err == nil {
		length := int(f.ContentLength())
		switch {
		case f.Chunked():
			length = -1
		case length < 0:
			length = 0 // fasthttp's value for a POST without a length
		}
		if max(h.ContentLength(), -1) != length && (h.ContentLength() != -2 || length != 0) || string(h.Host()) != string(host) {
			t.Fatalf("fasthttp reads Host %q, Content-Length %d; adbuffer reads %q, %d", h.Host(), h.ContentLength(), host, length)
		}
	}
	return rebuilt + "\r\n"
}

// checkBlock checks that block consists of lines, and that none of them is forbidden.
func checkBlock(t *testing.T, block []byte, named [][]byte, guardedToo bool) {
	t.Helper()
	for _, line := range linesOf(t, block) {
		testsupport.MustTrue(t, !strings.ContainsAny(line, "\r\n\x00"), "line %q", line)
		name, _, found := strings.Cut(line, ": ")
		testsupport.MustTrue(t, found && syntax.IsToken([]byte(name)), "line %q", line)
		canonical := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		testsupport.MustTrue(t, !slices.Contains(hopByHop, canonical) && !strings.HasPrefix(canonical, "X-Adbuffer-"), "%q crosses", line)
		testsupport.MustTrue(t, guardedToo || canonical != "Cookie" && canonical != "Authorization" && !strings.HasPrefix(canonical, "Proxy-"), "%q is forwarded without permission", line)
		if strings.HasPrefix(canonical, "X-Forwarded-For") || strings.HasPrefix(canonical, "X-Device-") || canonical == "Accept-Encoding" {
			continue // adbuffer's own field
		}
		for _, option := range named {
			testsupport.MustTrue(t, !strings.EqualFold(name, string(option)), "%q crosses although Connection names it", line)
		}
	}
}

// FuzzTruncate checks that under truncate no identity field is sent with a whole address, and that
// a sent X-Forwarded-For holds only addresses.
func FuzzTruncate(f *testing.F) {
	for _, line := range allIdentity {
		name, value, _ := strings.Cut(line, ": ")
		f.Add(name, value)
	}
	f.Add("Forwarded", `for="[2001:db8:cafe:1234::17]:4711";by=203.0.113.43, for=_x;ext="1.2.3.4"`)
	f.Add("X-Forwarded-For", "[2001:db8:2:0::1]:443, ::ffff:1.2.3.4,, 1.2.3.4:80, junk")
	f.Add("X-Device-Mixed", "1.2.3.4, tv")
	policy := NewPolicy(PolicyOptions{Identity: Both})
	f.Fuzz(func(t *testing.T, name, value string) {
		var fields RequestFields
		if fields.Scan([]byte(head(name+": "+value))) != nil || len(fields.Fields()) != 2 {
			return
		}
		k := fields.Fields()[1].id
		if !k.isIdentity() || k == nameDeviceUserAgent {
			return
		}
		var id Identity
		id.Resolve(&fields, netip.MustParseAddr("10.0.0.77"), true, private, true)
		for _, line := range linesOf(t, policy.AppendRequest(nil, &fields, &id)) {
			field, list, _ := strings.Cut(line, ": ")
			inList := strings.EqualFold(field, "X-Forwarded-For") || field == "X-Device-IP"
			split := func(r rune) bool { return strings.ContainsRune(`,;= "`, r) }
			if k == nameForwardedOther || k == nameDeviceOther {
				split = func(r rune) bool { return r == ',' }
			}
			if host := strings.Contains(strings.ToLower(list), "host=") || strings.Contains(strings.ToLower(list), "proto="); host {
				continue
			}
			for _, part := range strings.FieldsFunc(list, split) {
				addr, ok := parseAddr([]byte(part))
				testsupport.MustTrue(t, !inList || ok || strings.TrimSpace(part) == "", "%q holds %q, which is no address", line, part)
				testsupport.MustTrue(t, !ok || addr == Shorten(addr), "%s: %s is sent as %q with the whole address %v", name, value, line, addr)
			}
		}
	})
}

// FuzzAppendResponse checks that no hop-by-hop or guarded field is copied from an SSP's response, for
// any lines.
func FuzzAppendResponse(f *testing.F) {
	f.Add(adResponse)
	f.Add("Connection: X-A, close\r\nX-A: 1\r\nSet-Cookie: a=b\r\nD~te: 1\r\ndate: 2\r\n")
	f.Add("X-A: 1\r\nConnection: \r\n\r\nX-B:2\r\n")
	f.Fuzz(func(t *testing.T, lines string) {
		got := NewPolicy(PolicyOptions{}).AppendResponse(nil, []byte(lines), time.Now())
		dates, read := 0, 0
		for name, value := range syntax.Fields(got) {
			read += len(name) + len(": ") + len(value) + len("\r\n")
			testsupport.MustTrue(t, !bytes.ContainsAny(name, "\r\n") && !bytes.ContainsAny(value, "\r\n"), "%q: %q", name, value)
			canonical := http.CanonicalHeaderKey(strings.ReplaceAll(string(name), "_", "-"))
			if slices.Contains(hopByHop, canonical) || strings.HasPrefix(canonical, "X-Adbuffer-") || canonical == "Set-Cookie" || canonical == "Set-Cookie2" {
				t.Fatalf("%q crosses from %q", name, lines)
			}
			if canonical == "Date" {
				dates++
			}
		}
		testsupport.MustTrue(t, dates == 1 && read == len(got), "%d Dates from %q: %q", dates, lines, got)
	})
}
