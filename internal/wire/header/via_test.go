package header

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/syntax"
)

const thisVia = "adbuffer-0123456789abcdef"

func TestViaIsAddedBehindTheClients(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     PolicyOptions
		lines []string
		want  []string
	}{
		{"none so far", PolicyOptions{Via: thisVia}, nil, []string{"Via: 1.1 " + thisVia}},
		{"switched off", PolicyOptions{}, []string{"Via: 1.0 fred"}, []string{"Via: 1.0 fred"}},
		{"the client's are forwarded first, unchanged", PolicyOptions{Via: thisVia}, []string{"Via: 1.0 fred, 1.1 p.example (Apache, old)", "X-A: 1", "via:  2 edge "},
			[]string{"Via: 1.0 fred, 1.1 p.example (Apache, old)", "X-A: 1", "via: 2 edge", "Via: 1.1 " + thisVia}},
		{"with Connection, which cannot name it away", PolicyOptions{Via: thisVia}, []string{"Connection: Via"}, []string{"Via: 1.1 " + thisVia}},
		{"removed", PolicyOptions{Via: thisVia, Remove: []string{"VIA"}}, []string{"Via: 1.0 fred"}, nil},
		{"set", PolicyOptions{Via: thisVia, Set: []NameValue{{"via", "1.1 us"}}}, []string{"Via: 1.0 fred"}, []string{"via: 1.1 us"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Identity = None
			wantLines(t, cross(t, c.o, true, c.lines...), c.want...)
		})
	}
}

// RFC 9110, section 7.6.3: the version is that of the message as it was received.
func TestViaHasTheVersionOfTheRequest(t *testing.T) {
	p := NewPolicy(PolicyOptions{Identity: None, Via: thisVia})
	for _, f := range []struct {
		fields RequestFields
		want   string
	}{
		{RequestFields{HTTP10: true}, "1.0"},
		{RequestFields{}, "1.1"},
		{RequestFields{HTTP2: true}, "2.0"},
	} {
		mustScan(t, &f.fields, head())
		wantLines(t, linesOf(t, p.AppendRequest(nil, &f.fields, &Identity{})), "Via: "+f.want+" "+thisVia)
		var copied RequestFields
		copied.CopyFrom(&f.fields, nil)
		wantLines(t, linesOf(t, p.AppendRequest(nil, &copied, &Identity{})), "Via: "+f.want+" "+thisVia)
	}
}

func TestAdbuffersInVia(t *testing.T) {
	chain := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("1.1 adbuffer-%016x", i))
		}
		return strings.Join(all, ", ")
	}
	for _, c := range []struct {
		name   string
		lines  []string
		n      int
		itself bool
	}{
		{"no Via", []string{"X-Via: 1.1 " + thisVia}, 0, false},
		{"empty", []string{"Via:"}, 0, false},
		{"others", []string{"Via: 1.0 fred, 1.1 p.example (Apache)"}, 0, false},
		{"this process", []string{"Via: 1.1 " + thisVia}, 1, true},
		{"this process over HTTP/2, between others", []string{"Via: 1.0 fred,2.0 " + thisVia + ",HTTP/1.1 x"}, 1, true},
		{"in a second field", []string{"Via: 1.0 fred", "VIA: 1.1 " + thisVia}, 1, true},
		{"another process", []string{"Via: 1.1 adbuffer-fedcba9876543210"}, 1, false},
		{"a longer name", []string{"Via: 1.1 " + thisVia + "0"}, 1, false},
		{"a shorter name", []string{"Via: 1.1 " + thisVia[:len(thisVia)-1]}, 1, false},
		{"not the beginning of a name", []string{"Via: 1.1 my-" + thisVia + ", 1.1 _adbuffer-1"}, 0, false},
		{"with a port and a comment", []string{"Via: 1.1 " + thisVia + ":8080 (x)"}, 1, true},
		// A proxy that joins fields adds this process after an open comment.
		{"behind a comment without an end", []string{"Via: 1.1 evil (, 1.1 " + thisVia}, 1, true},
		{"behind a quote without an end", []string{`Via: 1.1 evil (", 1.1 ` + thisVia}, 1, true},
		{"eight", []string{"Via: " + chain(8)}, 8, false},
		{"nine in two fields", []string{"Via: " + chain(4), "Via: " + chain(5)}, 9, false},
		{"the prefix alone", []string{"Via: 1.1 adbuffer"}, 0, false},
	} {
		var f RequestFields
		mustScan(t, &f, head(c.lines...))
		n, itself := f.Adbuffers(thisVia)
		testsupport.True(t, n == c.n && itself == c.itself, "%s: %d, %v; want %d, %v", c.name, n, itself, c.n, c.itself)
	}
}

// FuzzAdbuffers compares Adbuffers with a search by the standard library.
func FuzzAdbuffers(f *testing.F) {
	for _, seed := range []string{"1.1 " + thisVia, "1.0 fred, 1.1 adbuffer-1 (c), 2.0 adbuffer-", "adbuffer-adbuffer-1", "xadbuffer-1/adbuffer-2", "(adbuffer-1", "adbufferadbuffer-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		var fields RequestFields
		if fields.Scan([]byte(head("Via: "+value))) != nil {
			return
		}
		want, wantItself := 0, false
		for _, token := range strings.FieldsFunc(value, func(r rune) bool { return r >= 0x80 || !syntax.IsTokenByte(byte(r)) }) {
			if strings.HasPrefix(token, "adbuffer-") {
				want++
				wantItself = wantItself || token == thisVia
			}
		}
		n, itself := fields.Adbuffers(thisVia)
		testsupport.MustTrue(t, n == want && itself == wantItself, "%q: %d, %v; want %d, %v", value, n, itself, want, wantItself)
	})
}
