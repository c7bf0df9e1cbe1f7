package http1

import (
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

const (
	// maxUnwritten bounds the requests that wait to be written on one
	// connection, unless it is a single one: more only come together on a
	// connection that does not take them.
	maxUnwritten = 1 << 20
	// maxDirect is how many bytes of unanswered requests a caller writes
	// itself. So many fit into what the kernel keeps for a socket, on both
	// sides together, so the write does not block: whoever writes more gets a
	// goroutine for it.
	maxDirect = 64 << 10
	// maxRounds is how often a caller writes before it leaves the rest to a
	// goroutine: its own answer may have come.
	maxRounds = 4
	// maxKeptBuffer is the largest write buffer that is kept.
	maxKeptBuffer = 128 << 10
)

// flush writes until nothing is left to be written. Its caller has set writing.
// Should a write block all the same, it fails at the deadline.
func (p *Pipelined) flush(deadline time.Time) {
	for round := 0; ; round++ {
		p.mu.Lock()
		if round == maxRounds || p.queuedBytes-p.answeredBytes.Load() > maxDirect {
			p.mu.Unlock()
			go p.flushBehind()
			return
		}
		b := p.takeLocked()
		p.mu.Unlock()
		if b == nil || !p.write(b, deadline) {
			return
		}
	}
}

// flushBehind is flush for whom nobody waits: as long as anybody waits for an
// answer, the peer may take its time.
func (p *Pipelined) flushBehind() {
	for {
		p.mu.Lock()
		b, deadline := p.takeLocked(), p.latest.Add(p.opts.Linger)
		p.mu.Unlock()
		if b == nil || !p.write(b, deadline) {
			return
		}
	}
}

// takeLocked takes what is to be written now. If that is nothing, it returns
// nil, and writing ends.
func (p *Pipelined) takeLocked() *[]byte {
	b := p.out
	switch {
	case b == nil, p.writesEnded, !p.firstDone && p.takenBytes.Load() > 0:
		p.stopWritingLocked()
		return nil
	case !p.firstDone && p.first < len(*b):
		b = buffers.Get().(*[]byte)
		*b = append((*b)[:0], (*p.out)[:p.first]...)
		*p.out = append((*p.out)[:0], (*p.out)[p.first:]...)
	default:
		p.out = nil
	}
	p.takenBytes.Add(int64(len(*b)))
	return b
}

// write writes and releases b. After false, writing has ended.
func (p *Pipelined) write(b *[]byte, deadline time.Time) bool {
	p.sock.SetWriteDeadline(deadline) //nolint:errcheck // a closed socket fails the write
	n, err := p.net.Write(*b)
	left := len(*b) - n
	releaseBuffer(b)
	if err != nil {
		p.writeFailed(left, err)
		return false
	}
	return true
}

// writeFailed ends all writing, left bytes short of what was taken. The socket
// stays open: the peer's last answers, and with them perhaps word that it
// closes, may lie in it.
func (p *Pipelined) writeFailed(left int, err error) {
	first := p.setCloseReason(upstream.ClosedError)
	p.mu.Lock()
	p.takenBytes.Add(-int64(left))
	if !p.writesEnded {
		p.writeErr = err
		p.endWritesLocked()
		p.wakeReaderLocked()
	}
	p.stopWritingLocked()
	p.mu.Unlock()
	if first {
		p.owner.Changed()
	}
}

// stopWriting ends the writing of a caller that has written nothing.
func (p *Pipelined) stopWriting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopWritingLocked()
}

func (p *Pipelined) stopWritingLocked() {
	p.writing = false
	if p.writesEnded {
		p.writingEnded.Signal()
	}
}

// withdrawLocked takes back the request of e, of which nothing has been handed to
// Write, and returns its size. The caller moves the entries behind it forward.
func (p *Pipelined) withdrawLocked(e *entry) (size int64) {
	size = e.end - e.start
	at := e.start - p.takenBytes.Load()
	*p.out = slices.Delete(*p.out, int(at), int(at+size))
	p.queuedBytes -= size
	if len(*p.out) == 0 {
		releaseBuffer(p.out)
		p.out = nil
	}
	return size
}

// sealLocked drops what has not been taken, and sees to it that nothing more is
// written or appended.
func (p *Pipelined) endWritesLocked() {
	p.writesEnded = true
	if p.out != nil {
		releaseBuffer(p.out)
		p.out = nil
	}
}

func releaseBuffer(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		buffers.Put(b)
	}
}

// prove lets those write who waited for the first answer.
func (p *Pipelined) firstResponseDone() {
	p.mu.Lock()
	p.firstDone = true
	start := p.out != nil && !p.writing
	if start {
		p.writing = true
	}
	p.mu.Unlock()
	if start {
		go p.flushBehind()
	}
}
