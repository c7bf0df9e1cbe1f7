package http1

import (
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
)

const (
	// maxUnwritten bounds the requests that wait to be written on one connection, unless it is a single request. More
	// bytes gather only if the peer does not read.
	maxUnwritten = 1 << 20
	// maxDirect is how many bytes of outstanding requests a caller writes itself. The socket
	// buffers of both sides hold that many bytes, so the write does not block. A goroutine writes
	// larger amounts.
	maxDirect = 64 << 10
	// maxRounds is how often a caller writes before another goroutine takes over, since the caller's own response may
	// have arrived meanwhile.
	maxRounds = 4
	// maxKeptBuffer is the largest write buffer that is kept.
	maxKeptBuffer = 128 << 10
)

// flush writes until the buffer is empty. Its caller has set writing. A write that must wait for the
// SSP fails at the deadline, and ends the connection. All other writes succeed even after the
// deadline, since they carry requests of other callers too.
//
// Without a deadline, flush runs in its own goroutine, and a write may take as long as a caller waits
// for a response.
func (p *Pipelined) flush(deadline time.Time) {
	for round := 0; ; round++ {
		p.mu.Lock()
		p.writeUntil = deadline
		if deadline.IsZero() {
			p.writeUntil = p.latest.Add(p.opts.Linger)
		} else if round == maxRounds || p.queuedBytes-p.respondedBytes.Load() > maxDirect {
			p.mu.Unlock()
			go p.flush(time.Time{})
			return
		}
		b := p.takeLocked()
		p.mu.Unlock()
		if b == nil || !p.write(b) {
			return
		}
	}
}

// writeBy returns when a write that must wait fails.
func (p *Pipelined) writeBy() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writeUntil
}

// takeLocked takes the bytes to write now. If there are none, it returns nil and ends writing.
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

// write writes b and releases it. If it returns false, writing has ended.
func (p *Pipelined) write(b *[]byte) bool {
	n, err := p.net.Write(*b)
	left := len(*b) - n
	releaseBuffer(b)
	if err != nil {
		p.writeFailed(left, err)
		return false
	}
	return true
}

// writeFailed ends all writing after a write left bytes unwritten. The socket stays open: it may
// hold the peer's last responses, perhaps with an announcement of the close.
func (p *Pipelined) writeFailed(left int, err error) {
	first := p.setCloseReason(exchange.ClosedError)
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

func (p *Pipelined) stopWritingLocked() {
	p.writing = false
	if p.writesEnded {
		p.writingEnded.Signal()
	}
}

// withdrawLocked removes the request of e, of which no write has taken a byte, from the buffer, and returns the size
// of the request. The caller must move the later entries forward.
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

// endWritesLocked drops the bytes that no goroutine has taken, and prevents all later writes.
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

// firstResponseDone allows the write of the requests that waited for the first response.
func (p *Pipelined) firstResponseDone() {
	p.mu.Lock()
	p.firstDone = true
	start := p.out != nil && !p.writing
	if start {
		p.writing = true
	}
	p.mu.Unlock()
	if start {
		go p.flush(time.Time{})
	}
}
