package http2codec

// ReceiveWindow is how many bytes of DATA, padding included, the peer may still send on a
// connection or a stream. RFC 9113, section 6.9.
//
// adbuffer does not use the window to slow a peer down, since other limits bound the memory of received bytes. It
// returns credit in steps of half the window, as soon as the bytes have arrived. So more than half of the window is left
// before each frame. A frame is smaller than that, so none can exceed the window, and nothing checks it.
type ReceiveWindow struct{ size, left int }

// NewReceiveWindow returns a window of size bytes. size must be at least InitialWindow.
func NewReceiveWindow(size int) ReceiveWindow { return ReceiveWindow{size, size} }

// Left returns how many bytes the peer may still send.
func (w *ReceiveWindow) Left() int { return w.left }

// Take records that n bytes have arrived.
func (w *ReceiveWindow) Take(n int) { w.left -= n }

// AppendRefill appends a WINDOW_UPDATE for stream id, where 0 means the connection, if at least half of
// the window is used.
func (w *ReceiveWindow) AppendRefill(b []byte, id uint32) []byte {
	n := w.size - w.left
	if n < w.size/2 {
		return b
	}
	w.left = w.size
	return AppendWindowUpdate(b, id, uint32(n))
}
