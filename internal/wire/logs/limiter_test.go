package logs

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestLinesOfAMessageAreBoundedCountedAndSaid(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		core, lines := observer.New(zap.DebugLevel)
		l := NewLimiter(zap.New(core))
		log, other := l.Logger(), l.Logger()
		const flood, seconds = 1000, 3
		for range seconds {
			for i := range flood {
				log.Warn("a peer did this", zap.Int("i", i))
			}
			log.Warn("a peer did that")
			other.Warn("a peer did this") // has its own limit
			time.Sleep(time.Second + time.Millisecond)
		}
		synctest.Wait()
		n := lines.FilterMessage("a peer did this").Len()
		testsupport.True(t, n == seconds*(PerSecond+1), "%d lines in %d seconds, want %d each", n, seconds, PerSecond+1)
		testsupport.Equal(t, lines.FilterMessage("a peer did that").Len(), seconds, "%d lines of a message that was not repeated")
		testsupport.Equal(t, l.Suppressed(), seconds*(flood-PerSecond), "%d lines are counted")
		said := lines.FilterMessageSnippet("suppressed").All()
		testsupport.MustEqual(t, len(said), seconds, "it was reported %d times, want once a second")
		for _, line := range said {
			f := line.ContextMap()
			testsupport.True(t, f["lines"] == uint64(flood-PerSecond) && fmt.Sprint(f["messages"]) == "[a peer did this]", "it said %v", f)
		}
	})
}

// The report about suppressed lines is short, however many messages there are.
func TestReportOfSuppressedLinesIsBounded(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		core, lines := observer.New(zap.DebugLevel)
		l := NewLimiter(zap.New(core))
		log := l.Logger()
		for i := range 100 {
			for range 2 * PerSecond {
				log.Info("message " + strings.Repeat("x", i))
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		said := lines.FilterMessageSnippet("suppressed").All()
		testsupport.True(t, len(said) == 1 && len(said[0].ContextMap()["messages"].([]any)) == maxNamed, "it said %v", said)
	})
}

func TestLevelsAndFieldsStay(t *testing.T) {
	core, lines := observer.New(zap.WarnLevel)
	l := NewLimiter(zap.New(core).With(zap.String("a", "b")))
	log := l.Logger().With(zap.String("c", "d"))
	log.Info("too low")
	log.Error("yes")
	all := lines.All()
	testsupport.True(t, len(all) == 1 && all[0].ContextMap()["a"] == "b" && all[0].ContextMap()["c"] == "d" && l.Suppressed() == 0, "written: %v", all)
}
