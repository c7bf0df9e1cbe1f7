package ssp

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/syntax"
	"adbuffer/internal/wire/upstream"
)

func TestClassificationOfResponses(t *testing.T) {
	for _, c := range []struct {
		name   string
		by     NoBidBody
		method upstream.Method
		status int
		body   string
		fields string
		want   upstream.Outcome
	}{
		{"200 with a body", "", upstream.GET, 200, "x", "", upstream.Fill},
		{"206 with a body", "", upstream.GET, 206, "x", "", upstream.Fill},
		{"200 without a body", "", upstream.GET, 200, "", "", upstream.NoBid},
		{"204", "", upstream.POST, 204, "", "", upstream.NoBid},
		{"HEAD 200", NoBidVAST, upstream.HEAD, 200, "", "", upstream.Fill},
		{"HEAD 204", "", upstream.HEAD, 204, "", "", upstream.NoBid},
		{"302", "", upstream.GET, 302, "x", "", upstream.Redirect},
		{"304", "", upstream.GET, 304, "", "", upstream.Redirect},
		{"404", "", upstream.GET, 404, "x", "", upstream.ClientError},
		{"429", "", upstream.GET, 429, "", "", upstream.ClientError},
		{"500", NoBidVAST, upstream.GET, 500, adVAST, "", upstream.ServerError},
		{"599", "", upstream.GET, 599, "", "", upstream.ServerError},
		{"VAST, not set", "", upstream.GET, 200, noAdVAST, "", upstream.Fill},
		{"VAST without an ad", NoBidVAST, upstream.GET, 200, noAdVAST, "", upstream.NoBid},
		{"VAST with an ad", NoBidVAST, upstream.GET, 200, adVAST, "", upstream.Fill},
		{"VAST with an ad without attributes", NoBidVAST, upstream.GET, 200, "<VAST><Ad>", "", upstream.Fill},
		{"VAST with an ad, then a line break", NoBidVAST, upstream.GET, 200, "<VAST><Ad\n id='1'>", "", upstream.Fill},
		{"VAST with <AdSystem> alone", NoBidVAST, upstream.GET, 200, "<VAST><AdSystem>x</AdSystem><Ad", "", upstream.NoBid},
		{"VAST with an ad in a namespace", NoBidVAST, upstream.GET, 200, "<v:VAST xmlns:v='v'><v:Ad id='1'>", "", upstream.Fill},
		{"VAST with a prefix of other letters", NoBidVAST, upstream.GET, 200, "<v:VAST><\u00e9-1:Ad/>", "", upstream.Fill},
		{"VAST with <v:AdSystem> alone", NoBidVAST, upstream.GET, 200, "<v:VAST><v:AdSystem>", "", upstream.NoBid},
		{"VAST with an Ad that is no tag", NoBidVAST, upstream.GET, 200, "<VAST> Ad </v:Ad> a:Ad <a b:Ad /> <:Ad> <x:y:Ad>", "", upstream.NoBid},
		{"VAST, blanks", NoBidVAST, upstream.GET, 200, " \r\n", "", upstream.NoBid},
		{"VAST, a byte order mark", NoBidVAST, upstream.GET, 200, "\ufeff", "", upstream.NoBid},
		{"VAST, a byte order mark of UTF-16", NoBidVAST, upstream.GET, 200, "\xff\xfe", "", upstream.NoBid},
		{"VAST, null", NoBidVAST, upstream.GET, 200, "null", "", upstream.NoBid},
		{"OpenRTB, null", NoBidOpenRTB, upstream.POST, 200, " null\n", "", upstream.NoBid},
		{"OpenRTB, blanks", NoBidOpenRTB, upstream.POST, 200, " \t\r\n", "", upstream.NoBid},
		{"OpenRTB, a byte order mark", NoBidOpenRTB, upstream.POST, 200, "\ufeff", "", upstream.NoBid},
		{"OpenRTB, a byte order mark and null", NoBidOpenRTB, upstream.POST, 200, "\ufeffnull", "", upstream.NoBid},
		{"OpenRTB, a byte order mark and no bid", NoBidOpenRTB, upstream.POST, 200, "\ufeff" + noBidJSON, "", upstream.NoBid},
		{"OpenRTB, a byte order mark and a bid", NoBidOpenRTB, upstream.POST, 200, "\ufeff" + bidJSON, "", upstream.Fill},
		{"OpenRTB, two byte order marks", NoBidOpenRTB, upstream.POST, 200, "\ufeff\ufeff", "", upstream.Fill},
		{"OpenRTB, null twice", NoBidOpenRTB, upstream.POST, 200, "null null", "", upstream.Fill},
		{"OpenRTB without a bid", NoBidOpenRTB, upstream.POST, 200, noBidJSON, "", upstream.NoBid},
		{"OpenRTB with an empty list of bids", NoBidOpenRTB, upstream.POST, 200, `{"seatbid":[{"bid" : [ ] }]}`, "", upstream.NoBid},
		{"OpenRTB with a bid", NoBidOpenRTB, upstream.POST, 200, bidJSON, "", upstream.Fill},
		{"OpenRTB with a bid and blanks", NoBidOpenRTB, upstream.POST, 200, "{\"seatbid\":[{\"bid\"\n:\t[ \r\n{}]}]}", "", upstream.Fill},
		{"OpenRTB with a bid in the second seat", NoBidOpenRTB, upstream.POST, 200, `{"seatbid":[{"bid":[]},{"bid":[{}]}]}`, "", upstream.Fill},
		{"OpenRTB where bid is a value", NoBidOpenRTB, upstream.POST, 200, `{"nbr":1,"ext":{"kind":"bid"}}`, "", upstream.NoBid},
		{"OpenRTB where bid is no list", NoBidOpenRTB, upstream.POST, 200, `{"bid":3}`, "", upstream.NoBid},
		{"OpenRTB, an empty object", NoBidOpenRTB, upstream.POST, 200, ` {} `, "", upstream.NoBid},
		{"OpenRTB, a reason alone", NoBidOpenRTB, upstream.POST, 200, `{"id":"1","nbr":2}`, "", upstream.NoBid},
		{"OpenRTB, seatbid is null", NoBidOpenRTB, upstream.POST, 200, `{"id":"1","seatbid":null}`, "", upstream.NoBid},
		{"OpenRTB, a seat without bids", NoBidOpenRTB, upstream.POST, 200, `{"seatbid":[{"seat":"x"}]}`, "", upstream.NoBid},
		{"OpenRTB, seatbid below another member", NoBidOpenRTB, upstream.POST, 200, `{"ext":{"seatbid":[{"bid":[{}]}]}}`, "", upstream.NoBid},
		{"OpenRTB, seatBid", NoBidOpenRTB, upstream.POST, 200, `{"seatBid":[{"bid":[{}]}]}`, "", upstream.Fill},
		{"OpenRTB, seatbid with escapes", NoBidOpenRTB, upstream.POST, 200, `{"s\u0065atbid":[{"bid":[{}]}]}`, "", upstream.Fill},
		{"OpenRTB 3 with a bid", NoBidOpenRTB, upstream.POST, 200, `{"openrtb":{"ver":"3.0","response":{"id":"1","seatbid":[{"bid":[{}]}]}}}`, "", upstream.Fill},
		{"OpenRTB 3 without a bid", NoBidOpenRTB, upstream.POST, 200, `{"openrtb":{"response":{"id":"1","nbr":2}}}`, "", upstream.NoBid},
		{"OpenRTB, seatbid twice", NoBidOpenRTB, upstream.POST, 200, `{"seatbid":[],"seatbid":[]}`, "", upstream.Fill},
		{"OpenRTB, another document", NoBidOpenRTB, upstream.POST, 200, `[]`, "", upstream.Fill},
		{"OpenRTB, a bid quoted in a string", NoBidOpenRTB, upstream.POST, 200, `{"ext":"{\"bid\":[1]}"}`, "", upstream.NoBid},
		{"OpenRTB, a key that only ends in bid", NoBidOpenRTB, upstream.POST, 200, `{"x\"bid":[1]}`, "", upstream.NoBid},
		{"OpenRTB, the key with an escape", NoBidOpenRTB, upstream.POST, 200, `{"seatbid":[{"b\u0069d":[{}]}]}`, "", upstream.Fill},
		{"VAST in UTF-16", NoBidVAST, upstream.GET, 200, "\xff\xfe<\x00A\x00d\x00>\x00", "", upstream.Fill},
		{"VAST in UTF-16, the other byte order", NoBidVAST, upstream.GET, 200, "\xfe\xff\x00<\x00A\x00d\x00>", "", upstream.Fill},
		{"VAST in UTF-16 without a mark", NoBidVAST, upstream.GET, 200, "<\x00A\x00d\x00>\x00", "", upstream.Fill},
		{"VAST with a mark in UTF-8", NoBidVAST, upstream.GET, 200, "\ufeff" + noAdVAST, "", upstream.NoBid},
		{"OpenRTB, cut", NoBidOpenRTB, upstream.POST, 200, `{"seatbid":[`, "", upstream.Fill},
		{"labelled as compressed, but plain", NoBidVAST, upstream.GET, 200, "\x1f\x8b", "content-encoding: gzip\r\n", upstream.Fill},
		{"identity is not compressed", NoBidVAST, upstream.GET, 200, noAdVAST, "Content-Encoding: Identity\r\n", upstream.NoBid},
		{"larger than the search limit", NoBidVAST, upstream.GET, 200, strings.Repeat(" ", maxScan+1), "", upstream.Fill},
		{"as large as the search limit", NoBidVAST, upstream.GET, 200, strings.Repeat(" ", maxScan), "", upstream.NoBid},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSSP(options(func(o *Options) { o.NoBidBody = c.by }), &fakePool{})
			a := &upstream.Response{Status: c.status, Body: []byte(c.body), Fields: []byte(c.fields)}
			testsupport.Equal(t, s.classify(&Request{Method: c.method}, a), c.want, "is %v")
		})
	}
}

// FuzzHasVASTAd compares hasVASTAd with a parser: it finds each ad that the parser finds. A comment
// that looks like an ad counts as one.
func FuzzHasVASTAd(f *testing.F) {
	for _, seed := range []string{
		adVAST, noAdVAST, "<VAST><Ad/></VAST>", "<VAST><Ad\n/></VAST>", "<VAST><AdSystem/><Ad></Ad></VAST>", "<VAST><!-- <Ad> --></VAST>", "<VAST><x><![CDATA[<Ad >]]></x></VAST>",
		"<VAST><ad/></VAST>", "<VAST><v:Ad xmlns:v='v'/></VAST>", "<Ad>", "<VAST a='<Ad >'/>", "<?xml version='1.0' encoding='utf-8'?><VAST><Ad id=''/></VAST>",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := hasVASTAd(body)
		dec := xml.NewDecoder(bytes.NewReader(body))
		for {
			token, err := dec.RawToken()
			if err != nil {
				return
			}
			e, ok := token.(xml.StartElement)
			testsupport.MustTrue(t, !ok || e.Name.Local != "Ad" || got, "no ad is found in %q", body)
		}
	})
}

// FuzzHasBid compares hasBid with encoding/json, which ignores the case of names too.
func FuzzHasBid(f *testing.F) {
	for _, seed := range []string{
		`{"seatbid":[{"bid":[{"id":"1"}]}]}`, `{"seatbid":[{"bid":[]}]}`, `{"bid":"bid","x":["bid",":["]}`, `{"SeatBid":[{},{"bid":[0]}]}`, `{"seatbid":[[{"bid":[1]}]]}`,
		`{"nbr":3,"seatbid":null}`, `{"x":"\"seatbid\":[1"}`, `{"seatbid":{"bid":[null]}}`, `"bid"`, `{"seatb\u0069d":[{"b\u0069d":[{}]}]}`, `{"seatbid":[{"bid":{"x":1}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, _ := hasBid(body)
		var r map[string]json.RawMessage
		if got || json.Unmarshal(body, &r) != nil {
			return // an unreadable document may hold a bid
		}
		for name, value := range r {
			var seats []json.RawMessage
			if syntax.EqualFold([]byte(name), "seatbid") && json.Unmarshal(value, &seats) == nil {
				for _, s := range seats {
					var seat map[string]json.RawMessage
					if json.Unmarshal(s, &seat) != nil {
						continue
					}
					var bids []json.RawMessage
					testsupport.MustTrue(t, json.Unmarshal(seat["bid"], &bids) != nil || len(bids) == 0, "no bid in %q", body)
				}
			}
		}
	})
}
