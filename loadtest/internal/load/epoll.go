package load

// event is a socket that is ready.
type event struct {
	Key      int32 // the key given to Add
	Readable bool  // there are bytes, an end of stream or an error
	Writable bool
	HungUp   bool // the peer closed or the connection failed; the loop must read to the end
}
