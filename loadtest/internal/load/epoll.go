package load

// event is a socket that is ready.
type event struct {
	Key      int32 // as it was added
	Readable bool  // there are bytes, or the end of the stream, or an error
	Writable bool
	HungUp   bool // the peer closed, or the connection failed: read until the end
}
