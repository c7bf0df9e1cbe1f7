package config

import "net/url"

func checkTracing(t *Tracing, r *report) {
	if t.Endpoint == "" {
		return
	}
	u, err := url.Parse(t.Endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		r.add("tracing.endpoint", t.Endpoint, `must be an http or https URL, for example "http://127.0.0.1:4318/v1/traces"`)
	case u.User != nil:
		// Not shown: it holds a password.
		r.add("tracing.endpoint", u.Redacted(), "must not hold a user or a password")
	case u.Fragment != "":
		r.add("tracing.endpoint", t.Endpoint, "must not have a fragment")
	}
}
