package exchange

// firstRoom is the size of the first buffer for a body of unknown or larger size. After that, the
// buffer at most doubles each time.
const firstRoom = 4 << 10

// BodyRoom returns free memory behind Response.Body, of 1 to n bytes, for a connection to read
// into. n is at least 1 and may be a claim of the SSP. A claim takes no memory: the first buffer
// has firstRoom bytes, and each later one is at most twice as large as the bytes that have arrived.
func (ex *Exchange) BodyRoom(n int) []byte {
	ex.growBody(1)
	body := ex.Response.Body
	return body[len(body):min(cap(body), len(body)+n)]
}

// TakeBody adds the first n bytes of BodyRoom's result to Response.Body. If they do not fit into
// Share or Budget, it returns an *Error with Outcome Overloaded and leaves the body unchanged.
func (ex *Exchange) TakeBody(n int) error {
	if err := ex.Reserve(n); err != nil {
		return err
	}
	ex.Response.Body = ex.Response.Body[:len(ex.Response.Body)+n]
	return nil
}

// AppendBody copies p to the end of Response.Body. If it does not fit into Share or Budget, it
// returns an *Error with Outcome Overloaded and leaves the body unchanged.
func (ex *Exchange) AppendBody(p []byte) error {
	if err := ex.Reserve(len(p)); err != nil {
		return err
	}
	ex.growBody(len(p))
	ex.Response.Body = append(ex.Response.Body, p...)
	return nil
}

// growBody makes room for at least n bytes. It at least doubles the memory, so a body in many
// pieces is not copied for each piece. It never allocates more than a stated Content-Length.
func (ex *Exchange) growBody(n int) {
	body := ex.Response.Body
	if cap(body)-len(body) >= n {
		return
	}
	ahead := max(len(body), firstRoom-len(body))
	if l := ex.Response.ContentLength; l >= 0 {
		ahead = min(ahead, l-len(body))
	}
	ex.Response.Body = append(make([]byte, 0, len(body)+max(n, ahead)), body...)
}

// Reserve takes n more bytes of Share and of Budget for Response.Body, or of neither. It returns
// nil, or an *Error with Outcome Overloaded that names the limit. Call it for bytes that have
// arrived, never for bytes that the SSP only claims.
func (ex *Exchange) Reserve(n int) error {
	if e := reserveBoth(ex.Share, ex.Budget, int64(n), false); e != nil {
		e.Detail = "the response does not fit: " + e.Detail
		return e
	}
	ex.reserved += int64(n)
	return nil
}

// ReleaseBody empties Response.Body and releases its bytes to Share and Budget.
func (ex *Exchange) ReleaseBody() {
	ex.ReleaseBytes()
	ex.Response.Body = ex.Response.Body[:0]
}

// ReleaseBytes releases the bytes of Response.Body to Share and Budget. After a panic a connection may still
// write to the body, so ex is not released then: the garbage collector frees it.
func (ex *Exchange) ReleaseBytes() {
	ex.Share.Release(ex.reserved)
	ex.Budget.Release(ex.reserved)
	ex.reserved = 0
}
