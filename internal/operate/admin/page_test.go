package admin

import (
	"regexp"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestThePageMayRunOnlyItsOwnScript(t *testing.T) {
	w := newConsole(t, loopback, nil).ask("GET", "/", "")
	policy := w.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'sha256-", "style-src 'sha256-", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
		testsupport.True(t, strings.Contains(policy, want), "the policy %q lacks %q", policy, want)
	}
	for _, never := range []string{"unsafe", "http:", "*"} {
		testsupport.True(t, !strings.Contains(policy, never), "the policy %q has %q", policy, never)
	}
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Content-Type": "text/html; charset=utf-8"} {
		testsupport.Equal(t, w.Header().Get(name), want, "%[2]s is %[1]q", name)
	}
}

// The page has nothing that its policy would refuse, and needs nothing from the network.
func TestThePageIsOneFileThatNeedsNoNetwork(t *testing.T) {
	for what, pattern := range map[string]string{
		"an address elsewhere":     `(?i)(src|href|url)\s*[=(]\s*["']?(https?:)?//`,
		"an inline event handler":  `(?i)<[^>]* on[a-z]+=`,
		"an inline style":          `(?i)<[^>]* style=`,
		"markup made of text":      `innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(`,
		"a second script or style": `(?s)<script.*<script|<style.*<style`,
	} {
		text := strings.ReplaceAll(page, "http://www.w3.org/2000/svg", "") // a namespace, not a URL that is loaded
		testsupport.Equal(t, regexp.MustCompile(pattern).FindString(text), "", "the page has %[2]s: %[1].80s", what)
	}
}
