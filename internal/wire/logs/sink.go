package logs

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// maxHeld is how many bytes of log lines wait for a sink's writer, before lines are dropped.
const maxHeld = 1 << 20

// Sink writes log lines to a writer in the background. A writer that takes no more, such as a full
// pipe, slows no request down: lines beyond maxHeld bytes are dropped and counted.
type Sink struct {
	to io.Writer

	mu      sync.Mutex // guards the fields below
	held    []byte     // whole lines that wait
	spare   []byte     // the memory of what was written last
	writing bool       // a goroutine writes
	dropped uint64

	lost func(lines uint64) []byte
	// Only the goroutine that writes uses these.
	told uint64 // of dropped, those that a written line of lost counts
	cut  bool   // the last line was written in part
}

// NewSink returns a Sink that writes to w. Once w takes lines again after it took none, the first one is
// that of lost, which says how many lines are missing; nil for none.
func NewSink(w io.Writer, lost func(lines uint64) []byte) *Sink { return &Sink{to: w, lost: lost} }

// Write takes a line. It never waits and never fails.
func (s *Sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held)+len(line) > maxHeld {
		s.dropped++
		return len(line), nil
	}
	s.held = append(s.held, line...)
	if !s.writing {
		s.writing = true
		go s.write()
	}
	return len(line), nil
}

// write writes until nothing is held.
func (s *Sink) write() {
	for {
		s.mu.Lock()
		lines := s.held
		if len(lines) == 0 {
			s.writing = false
			s.mu.Unlock()
			return
		}
		s.held, s.spare = s.spare[:0], nil
		dropped := s.dropped
		s.mu.Unlock()

		n := s.writeAfterLoss(lines, dropped)
		s.mu.Lock()
		s.dropped += uint64(bytes.Count(lines[n:], []byte{'\n'}))
		if cap(lines) <= 64<<10 {
			s.spare = lines
		}
		s.mu.Unlock()
	}
}

// writeAfterLoss writes lines, and before them what tells of earlier lines that were dropped. It returns how
// many bytes of lines were written.
func (s *Sink) writeAfterLoss(lines []byte, dropped uint64) (n int) {
	var before []byte
	if s.cut {
		before = []byte{'\n'}
	}
	if dropped > s.told && s.lost != nil {
		before = append(before, s.lost(dropped-s.told)...)
	}
	if len(before) > 0 {
		n, err := s.to.Write(before)
		s.cut = s.cut && n == 0 || n > 0 && before[n-1] != '\n'
		if err != nil {
			return 0
		}
		s.told = dropped
	}
	n, _ = s.to.Write(lines)
	n = max(0, min(n, len(lines)))
	s.cut = n > 0 && lines[n-1] != '\n'
	return n
}

// syncWithin bounds Sync if the writer takes no more.
const syncWithin = time.Second

// Sync waits until all lines are written, for a second at most.
func (s *Sink) Sync() error {
	for end := time.Now().Add(syncWithin); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		writing := s.writing
		s.mu.Unlock()
		if !writing {
			return nil
		}
	}
	return nil
}

// Dropped returns how many lines were not written, since the writer took no more or failed. A nil Sink
// dropped none.
func (s *Sink) Dropped() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}
