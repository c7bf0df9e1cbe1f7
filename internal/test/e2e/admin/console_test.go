package admin

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestTheAccessLogOnAConsoleSaysWhereTheTimeWent(t *testing.T) {
	t.Parallel()
	ssp := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSHTTP1, Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(5 * time.Millisecond)}})
	want := []string{" INFO request ", `"outcome": "fill"`, `"ssp": "openx"`, `"protocol": "http1"`, `"pending_ms": `, `"dial_ms": `, `"tls_ms": `, `"ttfb_ms": `, `"total_ms": `, `"status": 200`}
	ab := startConsole(t, e2e.Single(ssp.URL(), e2e.Trust(t, ssp)))
	ab.Get("/fillbuffer")
	var line string
	testsupport.Eventually(t, "the line is written", func() bool {
		for l := range strings.Lines(ab.Log.String()) {
			if strings.Contains(l, want[0]) {
				line = l
			}
		}
		return line != ""
	})
	for _, w := range want {
		testsupport.True(t, strings.Contains(line, w), "%q is not in %s", w, line)
	}
}

// startConsole starts adbuffer with log.format console, and reads its ports from the log.
func startConsole(t *testing.T, config string) *e2e.Process {
	t.Helper()
	env := append(e2e.Patient(), "ADBUFFER_LOG_ACCESS_ENABLED=true", "ADBUFFER_LOG_ACCESS_SAMPLE=1", "ADBUFFER_LOG_FORMAT=console")
	cmd := e2e.Command(t, env, "serve", "--config", e2e.WriteConfig(t, config))
	return e2e.LaunchCommand(t, cmd, func(ab *e2e.Process) bool {
		m := regexp.MustCompile(` INFO ready {"listen": "(\S+)", "admin": "(\S+)"`).FindStringSubmatch(ab.Log.String())
		if m != nil {
			ab.TrafficAddr, ab.AdminAddr = m[1], m[2]
		}
		return m != nil
	})
}
