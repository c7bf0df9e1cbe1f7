//go:build !race

package main

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// TestKeepAliveReportHolds repeats a field report.
func TestKeepAliveReportHolds(t *testing.T) {
	testsupport.Long(t)
	code, out, errs := command(t, t.Context(), "field", "--only", "keepalive", "--scale", "0.1")
	testsupport.MustEqual(t, code, 0, "exit %d\n%s%s", out, errs)
	testsupport.True(t, strings.Count(out, "**HELD**") == 1, "the promise is not held:\n%s", out)
	rows := 0
	for line := range strings.Lines(out) {
		var c []string
		for cell := range strings.SplitSeq(line, "|") {
			c = append(c, strings.TrimSpace(cell))
		}
		if len(c) < 7 || !strings.HasPrefix(c[1], "generator") {
			continue
		}
		rows++
		testsupport.True(t, c[2] != "adbuffer" || c[6] == "1", "%s: the SSP saw %s handshakes, want 1", line, c[6])
		testsupport.True(t, c[3] != "close" || c[5] == "500", "%s: the client made %s handshakes, want 500", line, c[5])
	}
	testsupport.Equal(t, rows, 4, "%d rows")
}
