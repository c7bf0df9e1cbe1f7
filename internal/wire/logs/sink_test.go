package logs

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
)

// gate is a writer that blocks until it is opened.
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
		s := NewSink(g, nil)
		const lines = 100_000
		start := time.Now()
		for range lines {
			s.Write(line)
		}
		testsupport.Equal(t, time.Since(start), 0, "the lines took %v")
		held := lines - int(s.Dropped())
		testsupport.Between(t, held, maxPending/len(line), 2*maxPending/len(line)+1, "%d lines are held")
		if s.Sync(); time.Since(start) > 2*time.Second {
			t.Errorf("Sync took %v", time.Since(start))
		}
		close(g.open)
		synctest.Wait()
		got := bytes.Count(g.text.Bytes(), line)
		testsupport.True(t, got == held && g.text.Len() == held*len(line), "%d lines of %d were written, in %d bytes", got, held, g.text.Len())
	})
}

func TestLinesOfAWriterThatFailsAreCounted(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{}), err: errors.New("no space left")}
		close(g.open)
		s := NewSink(g, nil)
		for range 7 {
			s.Write(line)
		}
		s.Sync()
		testsupport.Equal(t, s.Dropped(), 7, "%d lines count as dropped")
	})
}

// disk is a writer that takes only so many bytes.
type disk struct {
	free int
	text bytes.Buffer
}

func (d *disk) Write(p []byte) (int, error) {
	n := min(len(p), d.free)
	d.free -= n
	d.text.Write(p[:n])
	if n < len(p) {
		return n, errors.New("no space left")
	}
	return n, nil
}

// After a full disk the log says how many lines are missing, once. The line that was cut ends there.
func TestTheLogSaysHowManyLinesItLost(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		d := &disk{free: 150}
		s := NewSink(d, func(lines uint64) []byte { return fmt.Appendf(nil, "lost %d\n", lines) })
		write := func(text string) {
			s.Write([]byte(text))
			synctest.Wait()
		}
		write(string(line))
		for range 7 { // 50 bytes of the first one are written
			write(string(line))
		}
		d.free = 1 // for the end of the line that was cut
		write("not written either\n")
		d.free = 1000
		write("a\n")
		write("b\n")
		want := string(line) + string(line[:50]) + "\nlost 8\na\nb\n"
		got := d.text.String()
		testsupport.True(t, got == want && s.Dropped() == 8, "%d lines dropped, and the file has\n%s\nwant\n%s", s.Dropped(), got, want)
	})
}
