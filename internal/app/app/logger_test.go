package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/testsupport"
)

func TestConsoleLinesCannotBeForged(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	testsupport.NoError(t, err)
	defer f.Close()
	log, level, sink, err := NewLogger(config.Log{Level: "info", Format: config.FormatConsole}, f)
	testsupport.NoError(t, err)
	log.Debug("not shown")
	log.With(zap.String("b", "2"), zap.Int("a", 1)).Info("request", zap.Duration("total", 20314567*time.Nanosecond), zap.Bool("reused", true),
		zap.String("error", "dial\n12:00:00.000 INFO forged"), zap.Error(errors.New("x=y")), zap.Strings("list", []string{"p", "q"}))
	level.SetLevel(zap.DebugLevel)
	log.Debug("shown now")
	testsupport.NoError(t, sink.Sync())
	b, err := os.ReadFile(f.Name())
	testsupport.NoError(t, err)
	want := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3} INFO request {"b": "2", "a": 1, "total": "20\.3ms", "reused": true, ` +
		`"error": "dial\\n12:00:00\.000 INFO forged", "error": "x=y", "list": \["p", "q"\]}\n` +
		`\d\d:\d\d:\d\d\.\d{3} DEBUG shown now\n$`)
	testsupport.True(t, want.Match(b), "logged:\n%s", b)
}

func TestLinesHaveTheProcessIDAndRoundedDurations(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	testsupport.NoError(t, err)
	defer f.Close()
	log, _, sink, err := NewLogger(config.Log{Level: "info"}, f)
	testsupport.NoError(t, err)
	log.Info("a", zap.Durations("d", []time.Duration{0, 1234 * time.Nanosecond, 1234567 * time.Nanosecond, 61234567 * time.Microsecond, -3*time.Hour - 1600*time.Millisecond}))
	testsupport.NoError(t, sink.Sync())
	b, err := os.ReadFile(f.Name())
	testsupport.NoError(t, err)
	want := fmt.Sprintf(`"msg":"a","pid":%d,"d":["0s","1.23µs","1.23ms","1m1.2s","-3h0m2s"]}`, os.Getpid())
	testsupport.True(t, strings.Contains(string(b), want), "logged %s, want %s", b, want)
}
