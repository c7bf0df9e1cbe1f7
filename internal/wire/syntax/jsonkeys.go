package syntax

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
	"unicode/utf8"
)

// MaxJSONKeys is how many keys all objects that are open at one point of a document may have together. A key takes 8
// bytes. A bid response has about 50 keys.
const MaxJSONKeys = 4096

// keys holds the hashes of the keys of all open objects. Two different keys with the same hash would count as equal,
// but with 64 bits and a secret seed that does not happen in practice.
type keys struct {
	hashes []uint64
	starts [MaxJSONDepth + 1]int // where the hashes of the object at each depth start
}

var keySets = sync.Pool{New: func() any { return new(keys) }}

var keySeed = maphash.MakeSeed()

// open begins an object.
func (k *keys) open(depth int) { k.starts[depth] = len(k.hashes) }

// add adds a key, without its quotes. It returns false if there are more than MaxJSONKeys keys.
func (k *keys) add(key []byte) bool {
	if len(k.hashes) == MaxJSONKeys {
		return false
	}
	k.hashes = append(k.hashes, hashKey(key))
	return true
}

// close ends an object. It returns false if the object has two equal keys.
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

// hashKey returns the same hash for keys that are equal after unescaping. key is part of a string
// that skipString has accepted.
func hashKey(key []byte) uint64 {
	next := bytes.IndexByte(key, '\\')
	if next < 0 {
		return maphash.Bytes(keySeed, key)
	}
	var h maphash.Hash
	h.SetSeed(keySeed)
	var char [utf8.UTFMax]byte
	for next >= 0 {
		h.Write(key[:next])
		r, n := JSONEscape(key[next:])
		h.Write(char[:utf8.EncodeRune(char[:], r)])
		key = key[next+n:]
		next = bytes.IndexByte(key, '\\')
	}
	h.Write(key)
	return h.Sum64()
}
