package logs

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// maxPending bounds the bytes of the lines that wait for a sink's writer. The lines that are being written may take as
// many bytes again.
const maxPending = 1 << 20

// Sink writes log lines to a writer in the background, so that a writer that blocks, such as a full pipe, delays no
// request. Lines beyond maxPending bytes are dropped and counted.
type Sink struct {
	to       io.Writer
	lostLine func(lines uint64) []byte // see NewSink

	mu      sync.Mutex // guards the four fields below
	pending []byte     // whole lines that wait to be written
	spare   []byte     // memory of the lines that were written last, for reuse
	writing bool       // the goroutine of write is running
	dropped uint64

	// Only the goroutine of write uses the fields below.
	reported uint64 // how many of the dropped lines have been reported with lostLine
	midLine  bool   // the writer failed within a line
}

// NewSink returns a Sink that writes to w. When w accepts bytes again after lines were dropped, the Sink writes the result
// of lostLine, a log line that says how many lines are missing, and then the pending lines, of which the oldest may
// precede the dropped lines. lostLine may be nil.
func NewSink(w io.Writer, lostLine func(lines uint64) []byte) *Sink {
	return &Sink{to: w, lostLine: lostLine}
}

// Write accepts a line. It never waits and never fails.
func (s *Sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending)+len(line) > maxPending {
		s.dropped++
		return len(line), nil
	}
	s.pending = append(s.pending, line...)
	if !s.writing {
		s.writing = true
		go s.write()
	}
	return len(line), nil
}

// write writes until no line is pending.
func (s *Sink) write() {
	for {
		s.mu.Lock()
		lines := s.pending
		if len(lines) == 0 {
			s.writing = false
			s.mu.Unlock()
			return
		}
		s.pending, s.spare = s.spare[:0], nil
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

// writeAfterLoss writes lines, after a line that reports dropped lines if there are any to report. It returns how
// many bytes of lines were written.
func (s *Sink) writeAfterLoss(lines []byte, dropped uint64) (n int) {
	var prefix []byte
	if s.midLine {
		prefix = []byte{'\n'}
	}
	if dropped > s.reported && s.lostLine != nil {
		prefix = append(prefix, s.lostLine(dropped-s.reported)...)
	}
	if len(prefix) > 0 {
		n, err := s.to.Write(prefix)
		s.midLine = s.midLine && n == 0 || n > 0 && prefix[n-1] != '\n'
		if err != nil {
			return 0
		}
		s.reported = dropped
	}
	n, _ = s.to.Write(lines)
	n = max(0, min(n, len(lines)))
	s.midLine = n > 0 && lines[n-1] != '\n'
	return n
}

// syncTimeout bounds Sync if the writer is blocked.
const syncTimeout = time.Second

// Sync waits until all lines are written or dropped, for at most syncTimeout. It returns an error for zap's WriteSyncer
// only: the error is always nil.
func (s *Sink) Sync() error {
	for end := time.Now().Add(syncTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		writing := s.writing
		s.mu.Unlock()
		if !writing {
			return nil
		}
	}
	return nil
}

// Dropped returns how many lines were lost because the writer was blocked or failed. For a nil Sink it returns 0.
func (s *Sink) Dropped() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}
