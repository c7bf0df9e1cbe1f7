package http2codec

import (
	"bytes"
	"hash/maphash"
)

// interned caches the decoded form of repeated Huffman-coded strings. Peers that do not use the dynamic table, such as
// nginx, send the same server, date and content-type with every response. Without the cache, decoding them takes a tenth
// of a client's time for an exchange (BenchmarkCodec/read: 980 ns without, 360 with).
//
// A string is stored at the second of two consecutive misses in its slot that have its hash, whatever the hits between
// them. So a string that occurs only once evicts nothing.
type interned struct {
	slots [128]internedString
}

type internedString struct {
	hash  uint64 // of the last miss
	coded []byte
	plain []byte // never modified, since callers may still use it
}

// maxInterned bounds the length of a kept string in coded form.
const maxInterned = 64

// find returns the slot for coded, and whether the slot holds it.
func (in *interned) find(coded []byte) (slot *internedString, hash uint64, ok bool) {
	hash = maphash.Bytes(hashSeed, coded)
	slot = &in.slots[hash%uint64(len(in.slots))]
	return slot, hash, bytes.Equal(slot.coded, coded)
}

// put records a miss, and stores the string if it is short and the previous miss in the slot had the same hash.
func (s *internedString) put(hash uint64, coded, plain []byte) {
	if s.hash == hash && len(coded) <= maxInterned {
		s.coded, s.plain = bytes.Clone(coded), bytes.Clone(plain)
	}
	s.hash = hash
}
