package http2codec

import "bytes"

// MaxTableSize is the initial size of a dynamic table on both sides. adbuffer's own tables never
// exceed it. RFC 7541, section 4.2.
const MaxTableSize = 4096

// EntryOverhead is the cost of an entry beside its bytes. So a table holds at most
// MaxTableSize/EntryOverhead entries. RFC 7541, section 4.1.
const EntryOverhead = 32

const maxTableEntries = MaxTableSize / EntryOverhead

// decoderTable is the dynamic table of a peer's encoder. Its strings follow each other in one block
// of memory, which is compacted when its end is reached.
type decoderTable struct {
	entries *[maxTableEntries]decoderEntry // a ring, with the newest entry at index newest; allocated by the first insert
	newest  int
	count   int
	size    int // as defined by RFC 7541, section 4.1
	max     int

	bytes []byte // 2*MaxTableSize, allocated by the first insert; the entries' strings are bytes[oldest entry's at:end]
	end   int
}

type decoderEntry struct {
	at                uint16 // offset of its name in bytes; its value follows
	nameLen, valueLen uint16
	nameClass, class  class // of the name, and of the whole field
}

func (e *decoderEntry) size() int { return int(e.nameLen) + int(e.valueLen) + EntryOverhead }

// entry returns the i-th newest entry, from 0, or nil if the table has fewer.
func (t *decoderTable) entry(i int) *decoderEntry {
	if i >= t.count {
		return nil
	}
	return &t.entries[(t.newest-i+maxTableEntries)%maxTableEntries]
}

// text returns the strings of e. They are valid until the next insert.
func (t *decoderTable) text(e *decoderEntry) (name, value []byte) {
	at, middle := int(e.at), int(e.at)+int(e.nameLen)
	return t.bytes[at:middle], t.bytes[middle : middle+int(e.valueLen)]
}

func (t *decoderTable) setMax(n int) {
	t.max = n
	t.evict(n)
}

// evict drops the oldest entries until the remaining ones take at most size.
func (t *decoderTable) evict(size int) {
	for t.size > size {
		t.size -= t.entry(t.count - 1).size()
		t.count--
	}
}

// insert adds an entry. An entry that is larger than the table empties the table, and is not added.
// name and value are not in t.bytes. RFC 7541, section 4.4.
func (t *decoderTable) insert(name, value []byte, nameClass, class class) {
	size := len(name) + len(value) + EntryOverhead
	t.evict(max(t.max-size, 0))
	if size > t.max {
		return
	}
	if len(t.bytes) < 2*MaxTableSize {
		t.grow()
	}
	e := decoderEntry{nameLen: uint16(len(name)), valueLen: uint16(len(value)), nameClass: nameClass, class: class}
	if t.end+len(name)+len(value) > len(t.bytes) {
		t.sweep()
	}
	e.at = uint16(t.end)
	t.end += copy(t.bytes[t.end:], name)
	t.end += copy(t.bytes[t.end:], value)
	t.newest = (t.newest + 1) % maxTableEntries
	t.entries[t.newest] = e
	t.count++
	t.size += size
}

// sweep moves the entries' strings to the start of bytes.
func (t *decoderTable) sweep() {
	if t.count == 0 {
		t.end = 0
		return
	}
	from := t.entry(t.count - 1).at
	copy(t.bytes, t.bytes[from:t.end])
	t.end -= int(from)
	for i := range t.count {
		t.entry(i).at -= from
	}
}

// grow allocates the memory for inserts.
func (t *decoderTable) grow() {
	if t.entries == nil {
		t.entries = new([maxTableEntries]decoderEntry)
	}
	grown := make([]byte, 2*MaxTableSize)
	copy(grown, t.bytes)
	t.bytes = grown
}

// shrink releases the memory that the entries do not use, until the next insert.
func (t *decoderTable) shrink() {
	if t.count == 0 {
		t.entries, t.bytes, t.end = nil, nil, 0
		return
	}
	t.sweep()
	t.bytes = bytes.Clone(t.bytes[:t.end])
}
