package main

import (
	"strings"
	"testing"
)

func TestExplainReadsItsURL(t *testing.T) {
	for target, want := range map[string]string{
		"/fill?to=https://shop.example/x": "GET /fill?to=https://shop.example/x HTTP/1.1\r\nHost: adbuffer\r\n\r\n",
		"http://ads.example:80/fill?a":    "GET /fill?a HTTP/1.1\r\nHost: ads.example:80\r\n\r\n",
		"https://ads.example":             "GET / HTTP/1.1\r\nHost: ads.example\r\n\r\n",
		"http://ads.example/fill?a#top":   "GET /fill?a HTTP/1.1\r\nHost: ads.example\r\n\r\n", // a fragment was sent
		"http://ads.example?a=b":          "GET /?a=b HTTP/1.1\r\nHost: ads.example\r\n\r\n",
	} {
		if got, err := new(explainFlags).message(target); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", target, got, err)
		}
	}
	for _, target := range []string{"", "fillbuffer", "ftp://ads.example/fill"} {
		if got, err := new(explainFlags).message(target); err == nil || !strings.Contains(err.Error(), "neither a URL") {
			t.Errorf("%s: %q, %v", target, got, err)
		}
	}
}
