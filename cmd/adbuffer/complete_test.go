package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTheShellCompletesNamesOfTheRunningAdbuffer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, `# HELP adbuffer_requests_total Requests.
adbuffer_requests_total{route="default",outcome="fill"} 1
adbuffer_requests_total{route="default",outcome="deadline"} 1
adbuffer_requests_total{route="video",outcome="fill"} 1
adbuffer_pool_saturation_ratio{ssp="openx"} 0
adbuffer_pool_saturation_ratio{ssp="backup"} 0
adbuffer_endpoint_requests_total{ssp="openx",endpoint="use.openx.example:443",outcome="fill"} 1
adbuffer_endpoint_requests_total{ssp="backup",endpoint="b.example:443",outcome="fill"} 1
`)
	}))
	defer s.Close()
	t.Setenv("ADBUFFER_ADMIN", "http://127.0.0.1:1")
	for line, want := range map[string]string{
		"ssp drain |":                            "backup openx",
		"ssp drain|o":                            "openx",
		"ssp weight openx|":                      "",
		"ssp enable openx --endpoint|":           "use.openx.example:443",
		"ssp list --endpoint|":                   "b.example:443 use.openx.example:443",
		"tail --ssp|":                            "backup openx",
		"tail --route|":                          "default video",
		"tail --outcome|d":                       "deadline",
		"plan --ssp|b":                           "backup",
		"bundle --capture|":                      "backup openx",
		"check|":                                 "yaml yml", // file names with these ends
		"tail --admin http://127.0.0.1:1 --ssp|": "",         // no adbuffer
	} {
		words, prefix, _ := strings.Cut(line, "|")
		args := append([]string{"__complete"}, strings.Fields(words)...)
		if !strings.Contains(line, "--admin") {
			args = append([]string{"__complete"}, append(strings.Fields(words)[:1], append([]string{"--admin", s.URL}, strings.Fields(words)[1:]...)...)...)
		}
		out, log, code := runHere(t, append(args, prefix)...)
		list, _, _ := strings.Cut(out, ":") // the directive of the shell follows
		if strings.Contains(want, ":") {
			list = out[:strings.LastIndex(out, "\n:")+1]
		}
		if got := strings.Join(strings.Fields(list), " "); code != exitOK || got != want {
			t.Errorf("%s: %q, want %q; exit status %d: %s", line, got, want, code, log)
		}
	}
}
