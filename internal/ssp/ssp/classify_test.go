package ssp

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"
)

const htmlPage = "<!DOCTYPE html>\n<html><head><title>Maintenance</title></head><body>Back soon</body></html>\n"

func TestClassificationOfResponses(t *testing.T) {
	for _, c := range []struct {
		name   string
		by     NoBidBody
		method exchange.Method
		status int
		body   string
		fields string
		want   exchange.Outcome
	}{
		{"200 with a body", "", exchange.GET, 200, "x", "", exchange.Fill},
		{"206 with a body", "", exchange.GET, 206, "x", "", exchange.Fill},
		{"200 without a body", "", exchange.GET, 200, "", "", exchange.NoBid},
		{"204", "", exchange.POST, 204, "", "", exchange.NoBid},
		{"HEAD 200", NoBidVAST, exchange.HEAD, 200, "", "", exchange.Fill},
		{"HEAD 204", "", exchange.HEAD, 204, "", "", exchange.NoBid},
		{"302", "", exchange.GET, 302, "x", "", exchange.Redirect},
		{"304", "", exchange.GET, 304, "", "", exchange.Redirect},
		{"404", "", exchange.GET, 404, "x", "", exchange.ClientError},
		{"429", "", exchange.GET, 429, "", "", exchange.ClientError},
		{"500", NoBidVAST, exchange.GET, 500, adVAST, "", exchange.ServerError},
		{"599", "", exchange.GET, 599, "", "", exchange.ServerError},
		{"VAST, not set", "", exchange.GET, 200, noAdVAST, "", exchange.Fill},
		{"VAST without an ad", NoBidVAST, exchange.GET, 200, noAdVAST, "", exchange.NoBid},
		{"VAST with an ad", NoBidVAST, exchange.GET, 200, adVAST, "", exchange.Fill},
		{"VAST with an ad without attributes", NoBidVAST, exchange.GET, 200, "<VAST><Ad>", "", exchange.Fill},
		{"VAST with an ad, then a line break", NoBidVAST, exchange.GET, 200, "<VAST><Ad\n id='1'>", "", exchange.Fill},
		{"VAST with <AdSystem> alone", NoBidVAST, exchange.GET, 200, "<VAST><AdSystem>x</AdSystem><Ad", "", exchange.Unreadable},
		{"VAST with an ad in a namespace", NoBidVAST, exchange.GET, 200, "<v:VAST xmlns:v='v'><v:Ad id='1'>", "", exchange.Fill},
		{"VAST with a prefix of other letters", NoBidVAST, exchange.GET, 200, "<v:VAST><\u00e9-1:Ad/>", "", exchange.Fill},
		{"VAST with <v:AdSystem> alone", NoBidVAST, exchange.GET, 200, "<v:VAST><v:AdSystem>", "", exchange.NoBid},
		{"VAST with an Ad that is no tag", NoBidVAST, exchange.GET, 200, "<VAST> Ad </v:Ad> a:Ad <a b:Ad /> <:Ad> <x:y:Ad>", "", exchange.NoBid},
		{"VAST, blanks", NoBidVAST, exchange.GET, 200, " \r\n", "", exchange.NoBid},
		{"VAST, a byte order mark", NoBidVAST, exchange.GET, 200, "\ufeff", "", exchange.NoBid},
		{"VAST, a byte order mark of UTF-16", NoBidVAST, exchange.GET, 200, "\xff\xfe", "", exchange.NoBid},
		{"VAST, null", NoBidVAST, exchange.GET, 200, "null", "", exchange.NoBid},
		{"OpenRTB, null", NoBidOpenRTB, exchange.POST, 200, " null\n", "", exchange.NoBid},
		{"OpenRTB, blanks", NoBidOpenRTB, exchange.POST, 200, " \t\r\n", "", exchange.NoBid},
		{"OpenRTB, a byte order mark", NoBidOpenRTB, exchange.POST, 200, "\ufeff", "", exchange.NoBid},
		{"OpenRTB, a byte order mark and null", NoBidOpenRTB, exchange.POST, 200, "\ufeffnull", "", exchange.NoBid},
		{"OpenRTB, a byte order mark and no bid", NoBidOpenRTB, exchange.POST, 200, "\ufeff" + noBidJSON, "", exchange.NoBid},
		{"OpenRTB, a byte order mark and a bid", NoBidOpenRTB, exchange.POST, 200, "\ufeff" + bidJSON, "", exchange.Fill},
		{"OpenRTB, two byte order marks", NoBidOpenRTB, exchange.POST, 200, "\ufeff\ufeff", "", exchange.Unreadable},
		{"OpenRTB, null twice", NoBidOpenRTB, exchange.POST, 200, "null null", "", exchange.Unreadable},
		{"OpenRTB without a bid", NoBidOpenRTB, exchange.POST, 200, noBidJSON, "", exchange.NoBid},
		{"OpenRTB with an empty list of bids", NoBidOpenRTB, exchange.POST, 200, `{"seatbid":[{"bid" : [ ] }]}`, "", exchange.NoBid},
		{"OpenRTB with a bid", NoBidOpenRTB, exchange.POST, 200, bidJSON, "", exchange.Fill},
		{"OpenRTB with a bid and blanks", NoBidOpenRTB, exchange.POST, 200, "{\"seatbid\":[{\"bid\"\n:\t[ \r\n{}]}]}", "", exchange.Fill},
		{"OpenRTB with a bid in the second seat", NoBidOpenRTB, exchange.POST, 200, `{"seatbid":[{"bid":[]},{"bid":[{}]}]}`, "", exchange.Fill},
		{"OpenRTB where bid is a value", NoBidOpenRTB, exchange.POST, 200, `{"nbr":1,"ext":{"kind":"bid"}}`, "", exchange.NoBid},
		{"OpenRTB where bid is no list", NoBidOpenRTB, exchange.POST, 200, `{"bid":3}`, "", exchange.NoBid},
		{"OpenRTB, an empty object", NoBidOpenRTB, exchange.POST, 200, ` {} `, "", exchange.NoBid},
		{"OpenRTB, a reason alone", NoBidOpenRTB, exchange.POST, 200, `{"id":"1","nbr":2}`, "", exchange.NoBid},
		{"OpenRTB, seatbid is null", NoBidOpenRTB, exchange.POST, 200, `{"id":"1","seatbid":null}`, "", exchange.NoBid},
		{"OpenRTB, a seat without bids", NoBidOpenRTB, exchange.POST, 200, `{"seatbid":[{"seat":"x"}]}`, "", exchange.NoBid},
		{"OpenRTB, seatbid below another member", NoBidOpenRTB, exchange.POST, 200, `{"ext":{"seatbid":[{"bid":[{}]}]}}`, "", exchange.NoBid},
		{"OpenRTB, seatBid", NoBidOpenRTB, exchange.POST, 200, `{"seatBid":[{"bid":[{}]}]}`, "", exchange.Fill},
		{"OpenRTB, seatbid with escapes", NoBidOpenRTB, exchange.POST, 200, `{"s\u0065atbid":[{"bid":[{}]}]}`, "", exchange.Fill},
		{"OpenRTB 3 with a bid", NoBidOpenRTB, exchange.POST, 200, `{"openrtb":{"ver":"3.0","response":{"id":"1","seatbid":[{"bid":[{}]}]}}}`, "", exchange.Fill},
		{"OpenRTB 3 without a bid", NoBidOpenRTB, exchange.POST, 200, `{"openrtb":{"response":{"id":"1","nbr":2}}}`, "", exchange.NoBid},
		{"OpenRTB, seatbid twice", NoBidOpenRTB, exchange.POST, 200, `{"seatbid":[],"seatbid":[]}`, "", exchange.Fill},
		{"OpenRTB, another document", NoBidOpenRTB, exchange.POST, 200, `[]`, "", exchange.Unreadable},
		{"OpenRTB, a bid quoted in a string", NoBidOpenRTB, exchange.POST, 200, `{"ext":"{\"bid\":[1]}"}`, "", exchange.NoBid},
		{"OpenRTB, a key that only ends in bid", NoBidOpenRTB, exchange.POST, 200, `{"x\"bid":[1]}`, "", exchange.NoBid},
		{"OpenRTB, the key with an escape", NoBidOpenRTB, exchange.POST, 200, `{"seatbid":[{"b\u0069d":[{}]}]}`, "", exchange.Fill},
		{"VAST in UTF-16", NoBidVAST, exchange.GET, 200, "\xff\xfe<\x00A\x00d\x00>\x00", "", exchange.Fill},
		{"VAST in UTF-16, the other byte order", NoBidVAST, exchange.GET, 200, "\xfe\xff\x00<\x00A\x00d\x00>", "", exchange.Fill},
		{"VAST in UTF-16 without a mark", NoBidVAST, exchange.GET, 200, "<\x00A\x00d\x00>\x00", "", exchange.Fill},
		{"VAST with a mark in UTF-8", NoBidVAST, exchange.GET, 200, "\ufeff" + noAdVAST, "", exchange.NoBid},
		{"OpenRTB, cut", NoBidOpenRTB, exchange.POST, 200, `{"seatbid":[`, "", exchange.Unreadable},
		{"labelled as compressed, but plain", NoBidVAST, exchange.GET, 200, "\x1f\x8b", "content-encoding: gzip\r\n", exchange.Unreadable},
		{"identity is not compressed", NoBidVAST, exchange.GET, 200, noAdVAST, "Content-Encoding: Identity\r\n", exchange.NoBid},
		{"HTML instead of VAST", NoBidVAST, exchange.GET, 200, htmlPage, "Content-Type: text/html\r\n", exchange.Unreadable},
		{"HTML instead of OpenRTB", NoBidOpenRTB, exchange.POST, 200, htmlPage, "Content-Type: text/html\r\n", exchange.Unreadable},
		{"HTML, not set", "", exchange.GET, 200, htmlPage, "", exchange.Fill},
		{"HTML with 404", NoBidVAST, exchange.GET, 404, htmlPage, "", exchange.ClientError},
		{"HTML for HEAD", NoBidVAST, exchange.HEAD, 200, htmlPage, "", exchange.Fill},
		{"JSON instead of VAST", NoBidVAST, exchange.GET, 200, `{"error":"no such account"}`, "", exchange.Unreadable},
		{"JSON that holds VAST", NoBidVAST, exchange.GET, 200, `{"adm":"<VAST><Ad id='1'></Ad></VAST>"}`, "", exchange.Fill},
		{"XML that is no VAST", NoBidVAST, exchange.GET, 200, "<?xml version='1.0'?>\n<!-- x --><error>account</error>", "", exchange.Unreadable},
		{"VAST after a declaration, a comment and a document type", NoBidVAST, exchange.GET, 200, "<?xml version='1.0'?> <!-- <a> --> <!DOCTYPE VAST>\n<v:VAST\nversion='3.0'/>\n", "", exchange.NoBid},
		{"VAST 1 without an ad", NoBidVAST, exchange.GET, 200, "<VideoAdServingTemplate></VideoAdServingTemplate>", "", exchange.NoBid},
		{"VMAP without an ad", NoBidVAST, exchange.GET, 200, "<vmap:VMAP xmlns:vmap='x' version='1.0'></vmap:VMAP>", "", exchange.NoBid},
		{"VAST, cut before its end", NoBidVAST, exchange.GET, 200, adVAST[:len(adVAST)-3], "", exchange.Unreadable},
		{"VAST, cut in a comment", NoBidVAST, exchange.GET, 200, "<!-- VAST>", "", exchange.Unreadable},
		{"text instead of VAST", NoBidVAST, exchange.GET, 200, "OK", "", exchange.Unreadable},
		{"VAST instead of OpenRTB", NoBidOpenRTB, exchange.POST, 200, adVAST, "", exchange.Unreadable},
		{"OpenRTB, nested too deep to be read", NoBidOpenRTB, exchange.POST, 200, `{"ext":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}", "", exchange.Fill},
		{"OpenRTB in protobuf", NoBidOpenRTB, exchange.POST, 200, "\n\x01x", "Content-Type: application/x-protobuf\r\n", exchange.Fill},
		{"an unknown coding", NoBidOpenRTB, exchange.POST, 200, bidJSON, "Content-Encoding: utf-8\r\n", exchange.Unreadable},
		{"brotli, which is not decoded", NoBidOpenRTB, exchange.POST, 200, "\x0b\x01\x80", "Content-Encoding: br\r\n", exchange.Fill},
		{"two codings", NoBidOpenRTB, exchange.POST, 200, "x", "Content-Encoding: br\r\nContent-Encoding: gzip\r\n", exchange.Fill},
		{"plain, labelled as gzip", NoBidOpenRTB, exchange.POST, 200, bidJSON, "Content-Encoding: gzip\r\n", exchange.Unreadable},
		{"a large gzip body", NoBidOpenRTB, exchange.POST, 200, "\x1f\x8b" + strings.Repeat("x", 2047), "Content-Encoding: gzip\r\n", exchange.Fill},
		{"a large BidResponse", NoBidOpenRTB, exchange.POST, 200, " {" + strings.Repeat(" ", 64<<10) + "}\n", "", exchange.Fill},
		{"a large BidResponse, cut", NoBidOpenRTB, exchange.POST, 200, "{" + strings.Repeat("x", 64<<10), "", exchange.Unreadable},
		{"a large HTML page instead of OpenRTB", NoBidOpenRTB, exchange.POST, 200, "<html>" + strings.Repeat("x", 64<<10) + "</html>", "", exchange.Unreadable},
		{"a large VAST document", NoBidVAST, exchange.GET, 200, "<VAST>" + strings.Repeat("x", 64<<10) + "</VAST>", "", exchange.Fill},
		{"a large JSON document instead of VAST", NoBidVAST, exchange.GET, 200, "{" + strings.Repeat("x", 64<<10) + "}", "", exchange.Unreadable},
		{"larger than the search limit", NoBidVAST, exchange.GET, 200, strings.Repeat(" ", maxScan+1), "", exchange.Fill},
		{"as large as the search limit", NoBidVAST, exchange.GET, 200, strings.Repeat(" ", maxScan), "", exchange.NoBid},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSSP(options(func(o *Options) { o.NoBidBody = c.by }), &fakePool{})
			a := &exchange.Response{Status: c.status, Body: []byte(c.body), Fields: []byte(c.fields)}
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

// FuzzSearchBids compares searchBids with encoding/json, which ignores the case of names too.
func FuzzSearchBids(f *testing.F) {
	for _, seed := range []string{
		`{"seatbid":[{"bid":[{"id":"1"}]}]}`, `{"seatbid":[{"bid":[]}]}`, `{"bid":"bid","x":["bid",":["]}`, `{"SeatBid":[{},{"bid":[0]}]}`, `{"seatbid":[[{"bid":[1]}]]}`,
		`{"nbr":3,"seatbid":null}`, `{"x":"\"seatbid\":[1"}`, `{"seatbid":{"bid":[null]}}`, `"bid"`, `{"seatb\u0069d":[{"b\u0069d":[{}]}]}`, `{"seatbid":[{"bid":{"x":1}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		outcome, _ := searchBids(body)
		var r map[string]json.RawMessage
		if outcome != exchange.NoBid || json.Unmarshal(body, &r) != nil {
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
