package header

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

var uuidv7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestUUIDv7HoldsItsTimeAndDiffersFromOthers(t *testing.T) {
	at := time.UnixMilli(0x0198_1234_abcd)
	seen := make(map[string]bool)
	for range 2000 {
		id := string(AppendUUIDv7(nil, at))
		testsupport.MustTrue(t, uuidv7.MatchString(id) && strings.HasPrefix(id, "01981234-abcd-7"), "%s is not a UUIDv7 of its time", id)
		testsupport.MustTrue(t, !seen[id], "%s was made twice", id)
		seen[id] = true
	}
}

func TestRequestIDIsTakenFromTrustedPeersInItsFormAlone(t *testing.T) {
	long := strings.Repeat("a", maxRequestID)
	for _, c := range []struct {
		name    string
		trusted bool
		lines   []string
		want    string // "" = a new one
	}{
		{"of a trusted peer", true, []string{"x-request-ID: Edge_1.a-9"}, "Edge_1.a-9"},
		{"of an untrusted peer", false, []string{"X-Request-Id: Edge_1.a-9"}, ""},
		{"none", true, nil, ""},
		{"empty", true, []string{"X-Request-Id:"}, ""},
		{"the longest", true, []string{"X-Request-Id: " + long}, long},
		{"too long", true, []string{"X-Request-Id: " + long + "a"}, ""},
		{"a space inside", true, []string{"X-Request-Id: a b"}, ""},
		{"a quote", true, []string{`X-Request-Id: a"b`}, ""},
		{"a slash", true, []string{"X-Request-Id: a/b"}, ""},
		{"not ASCII", true, []string{"X-Request-Id: é"}, ""},
		{"twice", true, []string{"X-Request-Id: a", "X-Request-Id: a"}, ""},
		{"with an underscore in its name", true, []string{"X_Request_Id: a"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := RequestFields{IDName: "X-Request-Id"}
			mustScan(t, &f, head(c.lines...))
			if f.RequestID(); len(f.RequestID()) != 0 {
				t.Errorf("there is an id before SetRequestID: %s", f.RequestID())
			}
			f.SetRequestID(c.trusted, time.Now())
			id := string(f.RequestID())
			if c.want == "" && !uuidv7.MatchString(id) || c.want != "" && id != c.want {
				t.Errorf("the id is %q, want %q", id, c.want)
			}
			var copied RequestFields
			copied.CopyFrom(&f, nil)
			testsupport.Equal(t, string(copied.RequestID()), id, "a copy has the id %q")
			for send, want := range map[bool][]string{false: nil, true: {"X-Request-Id: " + id}} {
				p := NewPolicy(PolicyOptions{Identity: None, RequestID: "X-Request-Id", SendRequestID: send})
				wantLines(t, linesOf(t, p.AppendRequest(nil, &copied, &Identity{})), want...)
			}
			f.Reset()
			testsupport.Equal(t, len(f.RequestID()), 0, "Reset kept the id: %v")
		})
	}
}

func TestPolicyKeepsTheRequestIDFromAnSSP(t *testing.T) {
	f := RequestFields{IDName: "X-Request-Id"}
	mustScan(t, &f, head("X-Request-Id: a"))
	f.SetRequestID(true, time.Now())
	for _, c := range []struct {
		o    PolicyOptions
		want []string
	}{
		{PolicyOptions{Remove: []string{"x_request_id"}}, nil},
		{PolicyOptions{Set: []NameValue{{"x-request-id", "ours"}}}, []string{"x-request-id: ours"}},
	} {
		c.o.Identity, c.o.RequestID, c.o.SendRequestID = None, "X-Request-Id", true
		wantLines(t, linesOf(t, NewPolicy(c.o).AppendRequest(nil, &f, &Identity{})), c.want...)
	}
}

func TestFieldsThatMeanSomethingElseHoldNoRequestID(t *testing.T) {
	for name, ok := range map[string]bool{
		"X-Request-Id": true, "Request-Id": true, "X-Correlation-ID": true,
		"": false, "a b": false, "Host": false, "Cookie": false, "Via": false, "Date": false, "Server": false, "X-Forwarded-For": false, "Content-Type": false,
		"X-Adbuffer-Id": false, "X_Forwarded_For": false, "Connection": false,
	} {
		err := CheckRequestID(name)
		testsupport.True(t, (err == nil) == ok, "%q: %v", name, err)
	}
}
