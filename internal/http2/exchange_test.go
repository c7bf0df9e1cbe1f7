package http2

import (
	"testing"
)

func TestResponseReachesItsCaller(t *testing.T) {
	p := connect(t, testOptions())
	r := get("/bid?id=1")
	r.fields = "User-Agent: phone\r\nX-Id: 1\r\n"
	done := p.start(r)
	req := p.request()
	for name, value := range map[string]string{
		":method": "GET", ":scheme": "https", ":authority": "ssp.example", ":path": "/bid?id=1",
	} {
		if got := req.PseudoValue(name[1:]); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	var got string
	for _, f := range req.RegularFields() {
		got += f.Name + "=" + f.Value + ";"
	}
	if want := "user-agent=phone;x-id=1;"; got != want {
		t.Errorf("fields are %q, want %q", got, want)
	}
	if !req.StreamEnded() {
		t.Error("HEADERS of a GET without END_STREAM")
	}
	p.head(req.StreamID, false, ":status", "200", "content-type", "application/json", "content-length", "4")
	p.data(req.StreamID, true, "body")
	res := wait(t, done)
	res.wantBody(t, "body")
	if want := "content-type: application/json\r\ncontent-length: 4\r\n"; res.fields != want || res.length != 4 {
		t.Errorf("fields %q, length %d; want %q, 4", res.fields, res.length, want)
	}
	if res.reused {
		t.Error("the first exchange was marked as on a reused connection")
	}
	if res.times.FirstByte.IsZero() || res.times.Done.Before(res.times.FirstByte) {
		t.Errorf("times are %+v", res.times)
	}
	if n := p.owner.freed.Load(); n != 1 {
		t.Errorf("the place was freed %d times", n)
	}
}
