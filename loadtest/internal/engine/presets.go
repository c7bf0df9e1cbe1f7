package engine

import (
	"cmp"
	"strings"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
)

// Presets are requests of realistic sizes.
//
//	ad    a GET of about 800 bytes, as a web page sends it
//	rtb   a POST of an OpenRTB bid request, 1.3 KB (p95 3 KB, at most 20 KB)
//	vast  a GET with a URL of 2 KB, as server-side ad insertion sends it
func Presets() map[string]load.Template {
	phone := []load.Field{
		{Name: "User-Agent", Value: "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148"},
		{Name: "Accept", Value: "*/*"},
		{Name: "Accept-Language", Value: "en-US,en;q=0.9"},
		{Name: "Accept-Encoding", Value: "gzip, deflate, br"},
		{Name: "Referer", Value: "https://publisher.example/news/article-12345"},
		{Name: "X-Forwarded-For", Value: "203.0.113.77"},
	}
	return map[string]load.Template{
		"ad": {Name: "ad", Method: "GET", Headers: phone, Path: "/fillbuffer?cb=" + load.Number +
			"&pub=123456&site=publisher.example&slot=top-banner&w=300&h=250&imp=3&gdpr=1&gdpr_consent=CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA" +
			"&us_privacy=1YNN&ifa=6D92078A-8246-4BA4-AE5B-76104861E7DC&lat=40.71&lon=-74.00"},
		"rtb": {Name: "rtb", Method: "POST", Path: "/fillbuffer?cb=" + load.Number, JSON: true, Body: sspsim.Size{P50: 1300, P95: 3000, Max: 20000},
			Headers: []load.Field{{Name: "Content-Type", Value: "application/json"}, {Name: "X-Openrtb-Version", Value: "2.6"}, {Name: "Accept-Encoding", Value: "gzip"}}},
		"vast": {Name: "vast", Method: "GET", Headers: phone, Path: "/fillbuffer?cb=" + load.Number +
			"&format=video&pub=123456&vid=8472&min_dur=5&max_dur=30&cust=" + strings.Repeat("section%3Dsport%26genre%3Dlive%26", 55)},
	}
}

func fillPreset(r *load.Template) {
	p, known := Presets()[r.Preset]
	if !known {
		p = load.Template{Name: r.Path, Method: "GET"}
	}
	r.Name, r.Method, r.Path = cmp.Or(r.Name, p.Name), cmp.Or(r.Method, p.Method), cmp.Or(r.Path, p.Path)
	if r.Headers == nil {
		r.Headers = p.Headers
	}
	if r.Body == (sspsim.Size{}) && r.Literal == "" {
		r.Body, r.JSON = p.Body, r.JSON || p.JSON
	}
}
