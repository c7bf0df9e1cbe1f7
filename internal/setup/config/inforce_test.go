package config

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestLimitsInForceFitTheMachine(t *testing.T) {
	with := func(settings string) string {
		return "server: {max_connections: 10000, max_buffered_bytes: 100000000}\n" +
			"ssps: [{name: a, endpoints: [\"http://127.0.0.1:9000/\"], " + settings + "}]\n" +
			"routes: [{name: r, match: {path: /}, ssps: [a]}]\n"
	}
	for name, c := range map[string]struct {
		text         string
		machine      Machine
		conns, bytes int
		why          string // in the warnings; "" = none
	}{
		"unknown":                      {with(""), Machine{}, 10_000, 100_000_000, ""},
		"enough":                       {with(""), Machine{OpenFiles: 10_384, Memory: 400_000_000, MemoryFrom: "of it"}, 10_000, 100_000_000, ""},
		"one file too few":             {with(""), Machine{OpenFiles: 10_383}, 9_999, 100_000_000, "10383 files (ulimit -n)"},
		"health checks need files too": {with("health_check: {path: /}"), Machine{OpenFiles: 10_384}, 9_999, 100_000_000, "257 connections to SSPs"},
		"large pools":                  {with("pool: {max_conns: 60000}"), Machine{OpenFiles: 1128}, 500, 100_000_000, "60000 connections to SSPs"},
		"few files":                    {with(""), Machine{OpenFiles: 256}, 64, 100_000_000, "128 other files"},
		"very few files":               {with(""), Machine{OpenFiles: 32}, 8, 100_000_000, "16 other files"},
		"one file":                     {with(""), Machine{OpenFiles: 1}, 1, 100_000_000, "1 files"},
		"little memory":                {with(""), Machine{Memory: 64 << 20, MemoryFrom: "of the test"}, 10_000, 16 << 20, "a quarter of the 67108864 bytes of memory of the test"},
		"hardly any memory":            {with(""), Machine{Memory: 5, MemoryFrom: "of the test"}, 10_000, 1 << 20, "a quarter of the 5 bytes of memory of the test"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := mustParse(t, c.text)
			cfg.Machine = c.machine
			conns, held := cfg.MaxConnections(), cfg.MaxBufferedBytes()
			testsupport.True(t, conns.Value == c.conns && held.Value == c.bytes, "%d connections and %d bytes are in force, want %d and %d", conns.Value, held.Value, c.conns, c.bytes)
			for _, l := range []struct {
				Limit
				setting string
				lowered bool
			}{{conns, "server.max_connections", c.conns < 10_000}, {held, "server.max_buffered_bytes", c.bytes < 100_000_000}} {
				if !l.lowered && l.From() != l.setting || l.lowered && !strings.HasPrefix(l.From(), l.setting+", lowered from 10000") {
					t.Errorf("%s: its text is %q", l.setting, l.From())
				}
			}
			var texts []string
			for _, w := range warnings(cfg, machine{Machine: c.machine}, everyKey) {
				if strings.Contains(w.Text, "in force on this machine") {
					texts = append(texts, w.Text)
				}
			}
			text := strings.Join(texts, "; ")
			testsupport.True(t, (text == "") == (c.why == "") && len(texts) <= 1 && strings.Contains(text, c.why), "warnings %q, want one with %q", texts, c.why)
		})
	}
}

// The smallest limit counts, and the address space that the process has already does not.
func TestMemoryIsThatOfTheSmallestLimit(t *testing.T) {
	var m Machine
	m.readMemory()
	testsupport.True(t, m.Memory >= 1<<20 && m.MemoryFrom != "", "the memory is %d bytes %s", m.Memory, m.MemoryFrom)
	testsupport.AtLeast(t, addressSpace(), 1<<20, "the process has %d bytes of address space")
}
