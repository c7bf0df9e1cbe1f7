package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/config"
	"adbuffer/internal/sspsim"
)

func TestConsoleLinesAreForEyesAndCannotBeForged(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log, level, err := newLogger(config.Log{Level: "info", Format: config.FormatConsole}, f)
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("not shown")
	log.With(zap.String("b", "2"), zap.Int("a", 1)).Info("request", zap.Duration("total", 20314567*time.Nanosecond), zap.Bool("reused", true),
		zap.String("error", "dial\n12:00:00.000 INFO forged"), zap.Error(errors.New("x=y")), zap.Strings("list", []string{"p", "q"}))
	level.SetLevel(zap.DebugLevel)
	log.Debug("shown now")
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3} INFO request a=1 b=2 total=20\.31ms reused=true error="dial\\n12:00:00\.000 INFO forged" error="x=y" list="\[p q\]"\n` +
		`\d\d:\d\d:\d\d\.\d{3} DEBUG shown now\n$`)
	if !want.Match(b) {
		t.Errorf("logged:\n%s", b)
	}
}

func TestTheAccessLogSaysWhereTheTimeWent(t *testing.T) {
	t.Parallel()
	ssp := sspWith(t, sspsim.Behaviour{Latency: sspsim.Constant(5 * time.Millisecond)})
	for format, want := range map[string][]string{
		"json":    {`"msg":"request"`, `"outcome":"fill"`, `"ssp":"openx"`, `"protocol":"http1"`, `"pending":"`, `"dial":"`, `"first_byte":"`, `"total":"`, `"status":200`},
		"console": {" INFO request ", " outcome=fill", " ssp=openx", " protocol=http1", " pending=", " dial=", " first_byte=", " total=", " status=200"},
	} {
		ab := start(t, single(ssp.URL()), "ADBUFFER_LOG_ACCESS_ENABLED=true", "ADBUFFER_LOG_ACCESS_SAMPLE=1", "ADBUFFER_LOG_FORMAT=json")
		if format == "console" {
			ab = startConsole(t, single(ssp.URL()))
		}
		ab.get("/fillbuffer")
		var line string
		eventually(t, "the line is written", func() bool {
			for l := range strings.Lines(ab.log.String()) {
				if strings.Contains(l, want[0]) {
					line = l
				}
			}
			return line != ""
		})
		for _, w := range want {
			if !strings.Contains(line, w) {
				t.Errorf("%s: %q is not in %s", format, w, line)
			}
		}
	}
}

// startConsole starts one whose log is for eyes; its ports are found there.
func startConsole(t *testing.T, config string) *adbuffer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "adbuffer.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(patient[:len(patient):len(patient)], "ADBUFFER_LOG_ACCESS_ENABLED=true", "ADBUFFER_LOG_ACCESS_SAMPLE=1", "ADBUFFER_LOG_FORMAT=console")
	return launchWith(t, env, func(ab *adbuffer) bool {
		m := regexp.MustCompile(` INFO ready listen=(\S+) admin=(\S+)`).FindStringSubmatch(ab.log.String())
		if m != nil {
			ab.traffic, ab.admin = m[1], m[2]
		}
		return m != nil
	}, "serve", "--config", file)
}
