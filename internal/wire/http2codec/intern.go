package http2codec

import (
	"bytes"
	"hash/maphash"
)

// interned remembers repeated Huffman-coded strings in decoded form. Peers that do not use the
// table (nginx) send the same server, date and content-type with every response. Decoding them took
// a tenth of a client's time for an exchange (BenchmarkCodec/read: 980 ns without, 360 with).
//
// A string is kept when two misses in a row in its slot have its hash; hits between them do not count. So a value that
// only one response has replaces nothing.
type interned struct {
	slots [128]internedString
}

type internedString struct {
	hash  uint64 // of the last miss
	coded []byte
	plain []byte // never changed: it may be in use
}

// maxInterned bounds the length of a kept string in coded form.
const maxInterned = 64

// find returns the slot for coded, and whether the slot holds it.
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
