package main

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestCheckSaysWhetherTheFileIsValidThoughTheAdminListenerDoesNotRespond(t *testing.T) {
	const valid = "ssps: [{name: a, endpoints: [\"http://127.0.0.1:1/\"]}]\nroutes: [{name: r, match: {path: /}, ssps: [a]}]\n"
	for _, c := range []struct {
		config         string
		flags          []string
		stdout, stderr string
	}{
		{valid, nil, " is valid (SSPs: 1, routes: 1,", "connection refused"},
		{strings.Replace(valid, "name: r", "nam: r", 1), nil, "", "nam"},
		{strings.Replace(valid, "name: r", "nam: r", 1), []string{"--json"}, `"valid": false`, "connection refused"},
	} {
		stdout, stderr, code := runHere(t, append([]string{"check", writeFile(t, c.config), "--admin", "http://127.0.0.1:1"}, c.flags...)...)
		testsupport.True(t, code == exitFailed && strings.Contains(stdout, c.stdout) && strings.Contains(stderr, c.stderr) && strings.Contains(stderr, "--admin: "), "exit status %d\n%s\n%s", code, stdout, stderr)
	}
}
