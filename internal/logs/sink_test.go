package logs

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/testsupport"
)

// gate is a writer that takes nothing until it is opened.
type gate struct {
	open chan struct{}
	err  error

	mu   sync.Mutex
	text bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return 0, g.err
	}
	return g.text.Write(p)
}

var line = []byte(strings.Repeat("x", 99) + "\n")

func TestAWriterThatTakesNoMoreSlowsNothingDown(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		s := NewSink(g)
		const lines = 100_000
		start := time.Now()
		for range lines {
			s.Write(line)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("the lines took %v", took)
		}
		held := lines - int(s.Dropped())
		if held < maxHeld/len(line) || held > 2*maxHeld/len(line)+1 {
			t.Errorf("%d lines are held", held)
		}
		if s.Sync(); time.Since(start) > 2*time.Second {
			t.Errorf("Sync took %v", time.Since(start))
		}
		close(g.open)
		synctest.Wait()
		if got := bytes.Count(g.text.Bytes(), line); got != held || g.text.Len() != held*len(line) {
			t.Errorf("%d lines of %d were written, in %d bytes", got, held, g.text.Len())
		}
	})
}

func TestLinesOfAWriterThatFailsAreCounted(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{}), err: errors.New("no space left")}
		close(g.open)
		s := NewSink(g)
		for range 7 {
			s.Write(line)
		}
		s.Sync()
		if n := s.Dropped(); n != 7 {
			t.Errorf("%d lines count as dropped, want 7", n)
		}
	})
}
