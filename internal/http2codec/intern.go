package http2codec

import (
	"bytes"
	"hash/maphash"
)

// interned remembers Huffman-coded strings that came more than once, decoded.
// Peers that do not use the table (nginx) send the same server, date and
// content-type with every response; decoding them took a tenth of all that a
// client spent on an exchange (BenchmarkCodec/read: 980 ns without, 360 with).
//
// A string is kept when its hash comes twice in a row in its slot. So values
// of a single response replace nothing.
type interned struct {
	slots [128]internedString
}

type internedString struct {
	hash  uint64 // of the string that came last
	coded []byte
	plain []byte // never written to again: it may be in use
}

// maxInterned bounds what is kept, coded.
const maxInterned = 64

// find returns the slot for coded, and whether it holds it.
func (in *interned) find(coded []byte) (slot *internedString, hash uint64, ok bool) {
	hash = maphash.Bytes(hashSeed, coded)
	slot = &in.slots[hash%uint64(len(in.slots))]
	return slot, hash, bytes.Equal(slot.coded, coded)
}

// put offers a string to its slot.
func (s *internedString) put(hash uint64, coded, plain []byte) {
	if s.hash == hash && len(coded) <= maxInterned {
		s.coded, s.plain = bytes.Clone(coded), bytes.Clone(plain)
	}
	s.hash = hash
}
