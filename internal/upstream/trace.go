package upstream

// Trace is the span of an exchange that is sampled. The SSP gets it as the parent of its own. W3C Trace Context.
type Trace struct {
	TraceID [16]byte
	SpanID  [8]byte
	// Continued: the trace is the client's. Otherwise it begins here.
	Continued bool
}

// IsZero reports whether there is no span: tracing is off, or the exchange is not sampled.
func (t *Trace) IsZero() bool { return t.SpanID == [8]byte{} }
