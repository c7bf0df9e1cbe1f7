package route

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
	"unicode/utf8"
)

// maxKeys is how many keys may be in the objects that are open at one place of a
// body. They take 8 bytes each. A bid response has some 50.
const maxKeys = 4096

// keys are the hashes of the keys of all objects that are open; reused. Two keys
// of one object that share a hash pass for the same: with 64 bits and a seed that
// nobody knows, that happens to no body in practice, and would only make it a
// string.
type keys struct {
	hashes []uint64
	starts [maxDepth + 1]int // where those of the object at each depth start
}

var keySets = sync.Pool{New: func() any { return new(keys) }}

var keySeed = maphash.MakeSeed()

func (k *keys) reset() { k.hashes = k.hashes[:0] }

// open begins an object.
func (k *keys) open(depth int) { k.starts[depth] = len(k.hashes) }

// add takes a key in, without its quotes. It returns false if there are too many.
func (k *keys) add(key []byte) bool {
	if len(k.hashes) == maxKeys {
		return false
	}
	k.hashes = append(k.hashes, hashKey(key))
	return true
}

// close ends an object. It returns false if the object has a key twice.
func (k *keys) close(depth int) bool {
	start := k.starts[depth]
	all := k.hashes[start:]
	k.hashes = k.hashes[:start]
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			return false
		}
	}
	return true
}

// hashKey is equal for keys that read the same, whether they are escaped or not.
// key is part of a string that pastString has accepted.
func hashKey(key []byte) uint64 {
	next := bytes.IndexByte(key, '\\')
	if next < 0 {
		return maphash.Bytes(keySeed, key)
	}
	var h maphash.Hash
	h.SetSeed(keySeed)
	var char [utf8.UTFMax]byte
	for next >= 0 {
		h.Write(key[:next]) //nolint:errcheck // it never fails
		r, n := unescape(key[next:])
		h.Write(char[:utf8.EncodeRune(char[:], r)]) //nolint:errcheck // as above
		key = key[next+n:]
		next = bytes.IndexByte(key, '\\')
	}
	h.Write(key) //nolint:errcheck // as above
	return h.Sum64()
}
