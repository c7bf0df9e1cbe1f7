package header

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"adbuffer/internal/test/testsupport"
)

// responseTo returns the lines that a client of adbuffer receives for an SSP's response with lines.
func responseTo(t *testing.T, p *Policy, lines ...string) []string {
	t.Helper()
	return linesOf(t, p.AppendResponse(nil, []byte(strings.Join(append(lines, ""), "\r\n")), time.Now()))
}

const someDate = "Date: Mon, 01 Jan 2001 00:00:00 GMT"

func TestTheFieldsOfAResponseThatCross(t *testing.T) {
	for _, c := range []struct {
		name        string
		pass        []string
		requestID   string
		lines, want []string
	}{
		{"end-to-end fields", nil, "",
			[]string{"server: openx/1", someDate, "content-TYPE: application/json", "Content-Length: 999", "x-lower-case: 1", "X-UPPER: 2",
				"content-encoding: gzip", "X-A: 1", "Cache-Control: no-store", "X-A: 2", "Empty:", "Location: /there", "Retry-After: 3", "x_a: 4"},
			[]string{"server: openx/1", someDate, "content-TYPE: application/json", "x-lower-case: 1", "X-UPPER: 2",
				"content-encoding: gzip", "X-A: 1", "Cache-Control: no-store", "X-A: 2", "Empty: ", "Location: /there", "Retry-After: 3", "x_a: 4"}},
		{"what is passed", []string{"SET-Cookie", "Alt-Svc", "strict-transport-security", "Clear-Site-Data"}, "",
			[]string{someDate, "set-cookie: a=b; Path=/", "Set-Cookie: a=c; HttpOnly", "alt-svc: clear",
				"Set-Cookie: ,;", "Strict-Transport-Security: max-age=1", "Clear-Site-Data: \"*\"", "Set_Cookie: x"},
			[]string{someDate, "set-cookie: a=b; Path=/", "Set-Cookie: a=c; HttpOnly", "alt-svc: clear",
				"Set-Cookie: ,;", "Strict-Transport-Security: max-age=1", "Clear-Site-Data: \"*\""}},
		// A name with underscores is another name: it must not replace the field with hyphens.
		{"names with underscores", nil, "",
			[]string{"Content-Type: application/json", "Content_Type: text/html", "Content_Encoding: gzip", someDate},
			[]string{"Content-Type: application/json", "Content_Type: text/html", "Content_Encoding: gzip", someDate}},
		// A client that lacks the first coding cannot decode the body.
		// A response without Content-Type gets none.
		{"all content codings", nil, "",
			[]string{someDate, "Content-Encoding: gzip", "content-encoding: br", "Content-Encoding: zstd"},
			[]string{someDate, "Content-Encoding: gzip", "content-encoding: br", "Content-Encoding: zstd"}},
		{"the first of two fields with one value", nil, "",
			[]string{"date: Mon, 01 Jan 2001 00:00:00 GMT", "Date: Tue, 02 Jan 2001 00:00:00 GMT", "D~te: x",
				"Content-Type: text/html", "Server: a", "content-type: text/css", "server: b"},
			[]string{"date: Mon, 01 Jan 2001 00:00:00 GMT", "D~te: x", "Content-Type: text/html", "Server: a"}},
		{"the request id of an SSP, if adbuffer has none", nil, "", []string{someDate, "x-request-id: theirs", "X_REQUEST_ID: theirs"}, []string{someDate, "x-request-id: theirs", "X_REQUEST_ID: theirs"}},
		{"no request id of an SSP beside adbuffer's", nil, "X-Request-Id", []string{someDate, "x-request-id: theirs", "X_REQUEST_ID: theirs"}, []string{someDate}},
	} {
		got := responseTo(t, NewPolicy(PolicyOptions{Pass: c.pass, RequestID: c.requestID}), c.lines...)
		testsupport.Equal(t, cmp.Diff(c.want, got), "", "%[2]s (-want +got):\n%[1]s", c.name)
	}
}

func TestResponsesLeaveHopByHopAndGuardedFieldsBehind(t *testing.T) {
	left := []string{"Connection: close, X-Hop", "connection: x-more,, date", "Keep-Alive: timeout=5", "Proxy-Connection: close", "TE: trailers",
		"Trailer: X-A", "Transfer-Encoding: chunked", "Upgrade: h2c", "Content-Length: 5", "X-Adbuffer-Source: ssp/evil", "x_adbuffer_source: a",
		"X-Hop: 1", "X-MORE: 2", someDate,
		"Set-Cookie: a=b", "set-cookie2: c=d", "Alt-Svc: h3=\":443\"", "Strict-Transport-Security: max-age=1", "Clear-Site-Data: \"*\"", "Proxy-Authenticate: Basic"}
	got := responseTo(t, NewPolicy(PolicyOptions{}), append(left, "X-A: 1")...)
	testsupport.MustTrue(t, len(got) == 2 && got[0] == "X-A: 1", "head is %q", got)
	date, found := strings.CutPrefix(got[1], "Date: ")
	_, err := http.ParseTime(date)
	testsupport.True(t, found && err == nil && got[1] != someDate, "a response whose Date is hop-by-hop gets %q", got[1])
}

func TestTooManyConnectionOptionsCloseTheGate(t *testing.T) {
	var lines []string
	for range maxOptions {
		lines = append(lines, "Connection: keep-alive, Close, te, X-A")
	}
	got := responseTo(t, NewPolicy(PolicyOptions{}), append(lines, someDate, "X-A: 0", "X-B: 1")...)
	testsupport.Equal(t, cmp.Diff([]string{someDate, "X-B: 1"}, got), "", "head (-want +got):\n%s")
	got = responseTo(t, NewPolicy(PolicyOptions{}), append(lines, "X-B: 1", "Connection: X-C")...)
	testsupport.True(t, len(got) == 1 && strings.HasPrefix(got[0], "Date: "), "head is %q", got)
}

func TestAppendDateIsNow(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		for range 3 {
			got, want := string(AppendDate(nil, time.Now())), "Date: "+time.Now().UTC().Format(http.TimeFormat)+"\r\n"
			testsupport.True(t, got == want, "Date is %q, now is %q", got, want)
			time.Sleep(700 * time.Millisecond)
		}
	})
}

func TestAppendResponseStopsAtALineThatIsNone(t *testing.T) {
	for _, lines := range []string{"X-A: 1\r\nnonsense\r\nX-B: 2\r\n", "X-A: 1\r\nX-B", "X-A: 1\r\n: 2\r\n", "X-A: 1\r\nConnection"} {
		got := string(NewPolicy(PolicyOptions{}).AppendResponse(nil, []byte(lines), time.Now()))
		testsupport.True(t, strings.HasPrefix(got, "X-A: 1\r\nDate: ") && !strings.Contains(got, "X-B"), "%q becomes %q", lines, got)
	}
}

func TestTrailersCrossWithoutFieldsThatAppendResponseDrops(t *testing.T) {
	p := NewPolicy(PolicyOptions{Pass: []string{"Set-Cookie"}, RequestID: "X-Request-Id"})
	lines := "Grpc-Status: 0\r\nX-Request-Id: a\r\nX_Request_Id: c\r\nx-request-id: b\r\nSet-Cookie: a\r\nContent-Type: a\r\n" +
		"Connection: a\r\nX-Forwarded-For: a\r\nX-Adbuffer-Source: a\r\nX-Other: 1\r\n"
	got, want := string(p.AppendTrailers(nil, []byte(lines))), "Grpc-Status: 0\r\nX-Other: 1\r\n"
	testsupport.True(t, got == want, "%q, want %q", got, want)
}
