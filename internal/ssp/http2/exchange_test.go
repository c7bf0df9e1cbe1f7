package http2

import (
	"testing"

	"adbuffer/internal/test/testsupport"
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
		testsupport.Equal(t, req.PseudoValue(name[1:]), value, "%[2]s is %[1]q", name)
	}
	var got string
	for _, f := range req.RegularFields() {
		got += f.Name + "=" + f.Value + ";"
	}
	testsupport.Equal(t, got, "user-agent=phone;x-id=1;", "fields are %q")
	testsupport.True(t, req.StreamEnded(), "HEADERS of a GET without END_STREAM")
	p.head(req.StreamID, false, ":status", "200", "content-type", "application/json", "content-length", "4")
	p.data(req.StreamID, true, "body")
	res := wait(t, done)
	res.wantBody(t, "body")
	want := "content-type: application/json\r\ncontent-length: 4\r\n"
	testsupport.True(t, res.fields == want && res.length == 4, "fields %q, length %d; want %q, 4", res.fields, res.length, want)
	testsupport.True(t, !res.reused, "the first exchange was marked as on a reused connection")
	testsupport.True(t, !res.times.FirstByte.IsZero() && !res.times.Done.Before(res.times.FirstByte), "times are %+v", res.times)
	testsupport.Equal(t, p.owner.freed.Load(), 1, "the place was freed %d times")
}
