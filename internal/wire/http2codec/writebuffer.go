package http2codec

// WriteBuffer holds the frames that wait to be written to an HTTP/2 connection. Goroutines append frames to Frames, and
// one goroutine at a time writes them to the socket. The connection's lock guards the WriteBuffer, but is not held
// during a write.
type WriteBuffer struct {
	Frames  []byte
	Writing bool   // a goroutine writes, or is about to write
	Failed  bool   // a write has failed: no more bytes are written
	Handed  uint64 // bytes that were passed to the socket, or are being written
	spare   []byte // replaces Frames while the bytes of Frames are being written
}

// maxKeptBuffer is the largest buffer that is reused.
const maxKeptBuffer = 64 << 10

// Waits reports whether frames wait for a write.
func (w *WriteBuffer) Waits() bool { return len(w.Frames) > 0 && !w.Failed }

// End returns the offset behind the last byte of Frames, counted as Handed is.
func (w *WriteBuffer) End() uint64 { return w.Handed + uint64(len(w.Frames)) }

// Take returns the frames, for one write. Meanwhile, goroutines append to an empty buffer.
func (w *WriteBuffer) Take() []byte {
	b := w.Frames
	w.Frames, w.spare = w.spare[:0], nil
	w.Handed += uint64(len(b))
	return b
}

// Written records the result of the write of b, which Take returned: the socket took n bytes.
func (w *WriteBuffer) Written(b []byte, n int, err error) {
	if cap(b) <= maxKeptBuffer {
		w.spare = b[:0]
	}
	if err != nil {
		w.Handed -= uint64(len(b) - n)
		w.Failed, w.Frames = true, nil
	}
}

// Free releases the memory of the buffer, which must be empty.
func (w *WriteBuffer) Free() { w.Frames, w.spare = nil, nil }
