package http2

// sendBuffer computes how many bytes can be written to the socket without blocking.
//
// Callers and the reader write to the socket themselves, which is cheaper than a wake-up of a
// writer goroutine. A peer that does not read must not block them. A caller has a deadline, and a
// blocked reader could mean a deadlock of both peers.
//
// A write blocks only if the socket's send buffer is full. When the peer responds to a request, all bytes that were
// written before that request have left the buffer. So the free part of the buffer is known without a system call. A
// write that may not fit is done by a goroutine that may block. A hostile peer can respond to requests that it has
// not read, so a write may block all the same; see Conn.writeBy.
//
// All figures are costs: bytes, and writeOverhead for each write.
type sendBuffer struct {
	// size is half of the kernel's send buffer, which the kernel grants unless its memory is short; 0 if the size is
	// unknown.
	size   uint64
	spent  uint64 // cost of all writes begun
	proven uint64 // cost of the writes that the peer has read
}

// writeOverhead is an upper bound of the kernel's extra cost of a write, TLS record headers
// included.
const writeOverhead = 2048

func cost(n int) uint64 { return uint64(n) + writeOverhead }

// fits reports whether n bytes can be written without waiting.
func (r *sendBuffer) fits(n int) bool { return r.spent-r.proven+cost(n) <= r.size }

// prove records that the peer has read all writes that had begun when spent had this value.
func (r *sendBuffer) prove(spent uint64) { r.proven = max(r.proven, spent) }
