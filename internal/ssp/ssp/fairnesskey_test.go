package ssp

import (
	"net/netip"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/header"
)

func TestFairnessKeyIsReadFromTheRequest(t *testing.T) {
	request := func(client, fields, query, body string) *Request {
		r := &Request{Fields: new(header.RequestFields), Identity: new(header.Identity), Query: []byte(query), Body: []byte(body)}
		testsupport.NoError(t, r.Fields.Scan([]byte("Host: a\r\n"+fields+"\r\n")))
		r.Identity.Resolve(r.Fields, netip.MustParseAddr(client), false, nil, true)
		return r
	}
	const bid = `{"id": "1", "site": {"page": "p", "publisher": {"name": "n", "id": "4711"}, "id": "s"}}`
	for _, c := range []struct {
		key, value string
		same, none *Request
		other      *Request
	}{
		{"client_ip", "", request("192.0.2.1", "", "", ""), nil, request("192.0.2.2", "", "", "")},
		{"client_ip", "", request("2001:db8:1:2::1", "", "", ""), nil, request("2001:db8:2::1", "", "", "")},
		{"header:X-Pub", "a b", request("192.0.2.2", "x-pub:  a b\r\nX-Pub: c\r\n", "", ""), request("192.0.2.1", "X_Pub: a b\r\n", "", ""), request("192.0.2.1", "X-Pub: a\r\n", "", "")},
		{"query:pub", "a%20b", request("192.0.2.2", "", "&x=1&pub=a%20b&pub=c", ""), request("192.0.2.1", "", "xpub=1&pub", ""), request("192.0.2.1", "", "pub=a+b", "")},
		{"openrtb:/site/publisher/id", `"4711"`, request("192.0.2.2", "", "", bid), request("192.0.2.1", "", "", `{"app": {"publisher": {"id": "4711"}}}`), request("192.0.2.1", "", "", `{"site":{"publisher":{"id":4711}}}`)},
		{"openrtb:/id", `"1"`, request("192.0.2.2", "", "", bid), request("192.0.2.1", "Content-Encoding: gzip\r\n", "", bid), request("192.0.2.1", "", "", `{"id":"2"}`)},
	} {
		is := request("192.0.2.1", "X-Pub: a b\r\n", "pub=a%20b", bid)
		if c.same.Identity.Client().Is6() {
			is = request("2001:db8:1::9", "", "", "")
		} else if c.key == "client_ip" {
			is.Identity = request("192.0.2.1", "", "", "").Identity
		}
		all := []*Request{is, c.same, c.none, c.other}
		var hashes [4]uint64
		for i, r := range all {
			if r == nil {
				continue
			}
			r.Fairness = NewFairnessKey(c.key)
			hashes[i] = r.FairKey()
			if i == 0 && string(r.Fairness.Value(r)) != c.value || i == 2 && len(r.Fairness.Value(r)) > 0 {
				t.Errorf("%s: request %d has the value %q", c.key, i, r.Fairness.Value(r))
			}
		}
		if hashes[0] != hashes[1] || hashes[0] == hashes[2] || hashes[0] == hashes[3] || hashes[2] == hashes[3] && c.none != nil {
			t.Errorf("%s: the hashes are %x, want two equal ones", c.key, hashes)
		}
	}
	testsupport.True(t, NewFairnessKey("") == nil && request("192.0.2.1", "", "", "").keyer() == nil, "without a key, requests have one")
}
