package http2codec

import (
	"bytes"
	"hash/maphash"
)

// interned caches the decoded form of the Huffman-coded strings that the peer of one connection repeats. Peers that do
// not use the dynamic table, such as nginx, send the same server, date and content-type with every response. Without
// the cache, decoding these strings takes a tenth of the time that an HTTP/2 client spends on an exchange
// (BenchmarkCodec/read in package ssp/http2: 980 ns without the cache, 360 ns with it).
//
// A miss stores its string if the previous miss in the slot had the same hash; hits between the two misses do not
// matter. So a string that occurs only once evicts nothing.
type interned struct {
	slots [128]internedString
}

type internedString struct {
	hash  uint64 // of the last miss
	coded []byte
	plain []byte // never modified, since callers may still use it
}

// maxInterned bounds the length of a stored string in coded form.
const maxInterned = 64

// find returns the slot for coded, and whether the slot holds it.
func (in *interned) find(coded []byte) (slot *internedString, hash uint64, ok bool) {
	hash = maphash.Bytes(hashSeed, coded)
	slot = &in.slots[hash%uint64(len(in.slots))]
	return slot, hash, bytes.Equal(slot.coded, coded)
}

// put records a miss of coded, which decodes to plain. It stores both if coded is at most maxInterned bytes long and the
// previous miss in the slot had the same hash.
func (s *internedString) put(hash uint64, coded, plain []byte) {
	if s.hash == hash && len(coded) <= maxInterned {
		s.coded, s.plain = bytes.Clone(coded), bytes.Clone(plain)
	}
	s.hash = hash
}
