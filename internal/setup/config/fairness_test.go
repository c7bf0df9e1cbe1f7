package config

import "testing"

func TestFormOfTheFairnessKey(t *testing.T) {
	for key, rule := range map[string]string{
		"client_ip": "", "header:X-Pub": "", "query:pub": "", "query:a%20b": "", "openrtb:/site/publisher/id": "", "openrtb:/id": "",
		"client_ip:":       "must be client_ip, header:NAME, query:NAME or openrtb:/path",
		"header":           "must be client_ip, header:NAME, query:NAME or openrtb:/path",
		"ip":               "must be client_ip, header:NAME, query:NAME or openrtb:/path",
		"header:":          "must be a header field name: letters, digits and !#$%&'*+-.^_`|~",
		"header:X Pub":     "must be a header field name: letters, digits and !#$%&'*+-.^_`|~",
		"query:":           "must name a query parameter as it is in a URL, for example query:pub",
		"query:a=b":        "must name a query parameter as it is in a URL, for example query:pub",
		"openrtb:site.id":  "must name a member by the names on the way to it, for example openrtb:/site/publisher/id",
		"openrtb:/":        "must name a member by the names on the way to it, for example openrtb:/site/publisher/id",
		"openrtb:/a//b":    "must name a member by the names on the way to it, for example openrtb:/site/publisher/id",
		"openrtb:/imp/*/a": "must name a member by the names on the way to it, for example openrtb:/site/publisher/id",
	} {
		if got := forms["fairness key"](key); got != rule {
			t.Errorf("%s: %q, want %q", key, got, rule)
		}
	}
}
